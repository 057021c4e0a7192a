"""The HTML that all pages share. What is passed in is HTML; texts are escaped by who has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

# Of a state that is the last; a run in any other is under way.
MARKS = {"passed": "✓", "failed": "✗"} | dict.fromkeys(("invalid", "inconclusive", "aborted", "unknown"), "⚠")

_HEIGHT, _EDGE = 36, 5  # of a curve, in pixels


@dataclass(frozen=True)
class Mark:
    """A value of a curve, or none. ``title`` is text; ``edge`` is the class of a line before it."""

    value: float | None
    title: str
    met: bool = True
    href: str = ""
    edge: str = ""


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


def curve(marks: Sequence[Mark], width: int = 240) -> str:
    """Values from the oldest as a drawing; what is joined ends at each edge."""
    known = [mark.value for mark in marks if mark.value is not None]
    low, span = min(known), max(known) - min(known)
    step = (width - 2 * _EDGE) / max(len(marks) - 1, 1)
    lines: list[list[str]] = [[]]
    drawn = []
    for number, mark in enumerate(marks):
        x, y = _EDGE + number * step, _HEIGHT - _EDGE
        if mark.edge:
            lines.append([])
            drawn.append(f'<path class="{mark.edge}" d="M{x - step / 2:.1f} 0v{_HEIGHT}"/>')
        said = f"<title>{escape(mark.title)}</title>"
        if mark.value is None:
            shape = f'<path d="M{x - 2.5:.1f} {y - 2.5}l5 5m0 -5l-5 5">{said}</path>'
        else:
            at = y - (_HEIGHT - 2 * _EDGE) * ((mark.value - low) / span if span else 0.5)
            lines[-1].append(f"{x:.1f},{at:.1f}")
            kind = "met" if mark.met else "unmet"
            shape = f'<circle class="{kind}" cx="{x:.1f}" cy="{at:.1f}" r="2.6">{said}</circle>'
        drawn.append(f'<a href="{escape(mark.href)}">{shape}</a>' if mark.href else shape)
    joined = "".join(f'<polyline points="{" ".join(line)}"/>' for line in lines)
    return (
        f'<svg class="curve" viewBox="0 0 {width} {_HEIGHT}" width="{width}" height="{_HEIGHT}" role="img">'
        f"{joined}{''.join(drawn)}</svg>"
    )
