"""Pages, one module each."""
