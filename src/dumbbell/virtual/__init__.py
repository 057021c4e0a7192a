"""Worlds of virtual time, and how playbooks run them."""
