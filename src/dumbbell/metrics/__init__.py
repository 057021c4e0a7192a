"""Metrics of a run: their definitions and values."""
