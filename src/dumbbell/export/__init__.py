"""Runs in the formats of other tools. Each module has ``write``, from one point to a file."""
