"""A run's directory: made, found again, read, and followed."""
