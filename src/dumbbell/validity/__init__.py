"""Checks of whether a run is valid; one module for each subject."""
