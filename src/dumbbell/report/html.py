"""The HTML that all pages share. What is passed in is HTML; texts are escaped by who has them."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files


def page(title: str, body: str) -> str:
    """A whole document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title></head><body><main>{body}</main></body></html>\n"
    )


def style() -> str:
    """The style sheet: once a page."""
    return f"<style>{files(__package__).joinpath('style.css').read_text()}</style>"


def verdict_box(state: str, body: str) -> str:
    """The verdict as a word and a colour, and what there is to say about it."""
    mark = {"passed": "✓", "failed": "✗"}.get(state, "⚠")
    return (
        f'<div class="verdict {state}"><div class="word">{mark} {state.upper()}</div><div>{body}</div></div>'
    )


def table(head: Iterable[str], rows: Iterable[str]) -> str:
    """A table of rows that are ``<tr>`` already, as :func:`row` makes them."""
    top = "".join(f"<th>{title}</th>" for title in head)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def row(cells: Iterable[str]) -> str:
    """A row of a table."""
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
