"""Suites that run every night, and what of their results has changed since."""
