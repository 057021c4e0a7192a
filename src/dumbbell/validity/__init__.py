"""Whether a run is what was asked: checks by subject."""
