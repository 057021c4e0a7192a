"""Numbers for pages and tools from the tables of a run; one module for each subject."""
