"""Suites that run every night, and the changes of their results."""
