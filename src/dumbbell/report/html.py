"""The HTML that all pages share. What is passed in is HTML; texts are escaped by who has them."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files

# Of a state that is the last; a run in any other is under way.
MARKS = {"passed": "✓", "failed": "✗"} | dict.fromkeys(("invalid", "inconclusive", "aborted", "unknown"), "⚠")


def page(title: str, body: str) -> str:
    """A whole document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title></head><body><main>{body}</main></body></html>\n"
    )


def assets() -> str:
    """The style sheet and the script: once a page."""
    own = files(__package__)
    style, script = (own.joinpath(name).read_text() for name in ("style.css", "page.js"))
    return f"<style>{style}</style><script>{script}</script>"


def word(state: str) -> str:
    """A state of a run as a word with a mark, in its colour."""
    return f'<span class="state {state}"><span class="word">{_marked(state)}</span></span>'


def _marked(state: str) -> str:
    return f"{MARKS.get(state, '…')} {state.upper()}"


def verdict_box(state: str, body: str) -> str:
    """The verdict as a word and a colour, and what there is to say about it."""
    return f'<div class="verdict {state}"><div class="word">{_marked(state)}</div><div>{body}</div></div>'


def table(head: Iterable[str], rows: Iterable[str]) -> str:
    """A table of rows that are ``<tr>`` already, as :func:`row` makes them, and the button that saves it."""
    top = "".join(f"<th>{title}</th>" for title in head)
    return (
        '<div class="table"><button class="csv" type="button" title="Save this table as CSV">CSV</button>'
        f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def row(cells: Iterable[str]) -> str:
    """A row of a table."""
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
