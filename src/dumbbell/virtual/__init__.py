"""Virtual time: what it cannot have, its worlds, and how playbooks run them."""
