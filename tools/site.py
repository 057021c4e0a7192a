"""Sphinx extension of the site (docs/conf.py): its contents, and pages of files that pages link."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from html import escape
from os.path import dirname, normpath, relpath
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.transforms import SphinxTransform

REPOSITORY = Path(__file__).parents[1]
# Pages with others below them in the site's margin, and the page that lists those.
LISTS = {page: page for page in ("docs/roles", "docs/seeds/README")} | {"README": "docs/README"}
LINK = re.compile(r"\]\(([^)#\s]+\.md)\)")
FILES = "files"  # the directory of the site with pages of files


def toctree(pages: Iterable[str], caption: str = "") -> str:
    """A hidden table of contents of pages, which the site shows in its margin under a caption."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, *pages, "```", ""])


def add_toctrees(_: Sphinx, page: str, text: list[str]) -> None:
    """Add to the margin what a forge shows as lists of links, each under its heading."""
    if page not in LISTS:
        return
    listing = LISTS[page]
    if listing != page:
        text[0] += toctree([f"/{listing}"])
    for section in re.split(r"^#+ ", (REPOSITORY / f"{listing}.md").read_text(), flags=re.MULTILINE):
        if pages := [normpath(f"/{dirname(listing)}/{link}") for link in LINK.findall(section)]:
            text[0] += toctree(pages, section.partition("\n")[0])


class LinkedFiles(SphinxTransform):
    """Lead links to files and directories to the page of each; that of a directory may be its README."""

    default_priority = 100  # before Sphinx copies files that are linked
    names: ClassVar[set[str]] = set()  # of files and directories to whose pages a link leads

    def apply(self, **_: Any) -> None:
        """Replace what MyST has made of these links. What is not there stays, and Sphinx warns of it."""
        made = (addnodes.download_reference, addnodes.pending_xref)
        for node in [found for kind in made for found in self.document.findall(kind)]:
            if node.get("reftype") != "myst" or node["refdomain"]:
                continue
            path = Path(self.env.relfn2path(node["reftarget"], self.env.docname)[1])
            if not path.exists():
                continue
            name = path.relative_to(REPOSITORY).as_posix()
            page = f"{name}/README"
            if page not in self.env.found_docs:
                page = f"{FILES}/{name}"
                self.names.add(name)
            target = f"{relpath(page, dirname(self.env.docname) or '.')}.html"
            node.replace_self(nodes.reference("", "", *node.children, refuri=target))


def pages_of_files(app: Sphinx) -> Iterator[tuple[str, dict[str, str], str]]:
    """A page of each linked file, and of each linked directory with the names of what is in it."""
    for name in sorted(LinkedFiles.names):
        body = _listing(name) if (REPOSITORY / name).is_dir() else _source(app, name)
        yield f"{FILES}/{name}", {"title": name, "body": f"<h1>{escape(name)}</h1>\n{body}"}, "page.html"


def _source(app: Sphinx, name: str) -> str:
    try:
        lexer = get_lexer_for_filename(name).aliases[0]
    except ClassNotFound:
        lexer = "text"
    assert isinstance(app.builder, StandaloneHTMLBuilder)  # no other emits the event
    return app.builder.highlighter.highlight_block((REPOSITORY / name).read_text(), lexer, force=True)


def _listing(name: str) -> str:
    command = ["git", "ls-files", "-z", name]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    items = []
    for file in filter(None, found.split("\0")):
        text = f"<code>{escape(relpath(file, name))}</code>"
        target = escape(f"{relpath(file, dirname(name) or '.')}.html")
        shown = f'<a href="{target}">{text}</a>' if file in LinkedFiles.names else text
        items.append(f"<li>{shown}</li>")
    return "<p>Files of this directory in the repository:</p>\n<ul>\n" + "\n".join(items) + "\n</ul>"


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.add_transform(LinkedFiles)
    app.connect("source-read", add_toctrees)
    app.connect("html-collect-pages", pages_of_files)
    return {"parallel_read_safe": False}
