"""Dumbbell: a controller for physical TCP testbeds."""
