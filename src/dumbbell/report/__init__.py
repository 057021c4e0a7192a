"""Pages about runs: parts, figures, and a module for each page. Notebooks put the parts together."""
