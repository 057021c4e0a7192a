"""Dumbbell: a controller for physical TCP testbeds."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]  # where it is a checkout
