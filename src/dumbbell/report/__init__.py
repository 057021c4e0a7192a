"""Pages about runs: parts of pages, figures, and a module for each page. Notebooks arrange the parts."""
