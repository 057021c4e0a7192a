"""The metrics of a run: what each one is, and its values."""
