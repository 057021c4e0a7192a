"""Comparison of runs and points: the settings of their hosts."""
