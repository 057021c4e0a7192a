"""Worlds of virtual time, how playbooks run them, and the controller within a light world."""

GIVEN = "light.json"  # in a world's directory: what the controller of a light world reads
