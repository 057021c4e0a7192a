"""The site that ``make site`` builds from the Markdown of the repository, by Sphinx."""

import importlib.metadata

project = "Dumbbell"
release = importlib.metadata.version("dumbbell")
copyright = "the authors of Dumbbell"

extensions = ["myst_parser", "sphinx.ext.autodoc", "tools.site"]
root_doc = "README"
_FOLDERS = ("docs", "docs/seeds", "docs/tutorials", "modules/*", "roles/*", "scenarios", "transports/*")
exclude_patterns = [".*", "ansible_collections", "results"]  # else Sphinx looks through kernels' sources too
include_patterns = ["*.md", *(f"{folder}/*.md" for folder in _FOLDERS)]

myst_heading_anchors = 6  # as forges have them
highlight_language = "text"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"

html_theme = "furo"
html_title = f"Dumbbell {release}"
html_static_path = ["site/site.css"]
html_css_files = ["site.css"]
html_extra_path = ["site/index.html"]
html_copy_source = False
