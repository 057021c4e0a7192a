"""Runs and points side by side: numbers, and the settings of their hosts."""
