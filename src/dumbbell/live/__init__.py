"""A page that shows a run while it lasts: what is known of it (known, flows), and how it looks (page)."""
