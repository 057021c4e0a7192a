"""Figures as small SVG."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import plotly.graph_objects as go
import polars as pl

from dumbbell.report import vector
from dumbbell.report.figures import thin

WIDTH_PX, HEIGHT_PX = 720, 300
MOST_OF_LINE = 1400  # twice the pixels of its axis
MOST_MARKERS = 4000
_POINTS = re.compile(r'<g class="points">((?:<path class="point"[^>]*/>)+)</g>')
_POINT = re.compile(
    r'translate\((?P<at>[^)]+)\)" d="M(?P<radius>[\d.]+),.*?opacity: (?P<opacity>[\d.]+).*?'
    r"fill: (?P<fill>rgb\([^)]*\))"
)


def write(figures: Mapping[Path, go.Figure]) -> None:
    """Draw figures into files; RuntimeError, with what to do, without a browser."""
    vector.write({path: thinned(figure) for path, figure in figures.items()})
    for path in figures:
        path.write_text(dots(path.read_text()))


def thinned(figure: go.Figure) -> go.Figure:
    """A copy for the width of a page, with no more than can be seen: of lines all extremes are kept."""
    made = go.Figure(figure)
    made.update_layout(
        width=WIDTH_PX,
        height=made.layout.height or HEIGHT_PX,
        font={"family": vector.FONT, "size": 11},
        paper_bgcolor="#ffffff",
        margin={"l": 60, "r": 10, "t": 10, "b": 40},
    )
    for trace in made.select_traces({"type": "scatter"}):
        rows = pl.DataFrame({"x": trace.x, "y": trace.y}, strict=False)
        if trace.mode == "markers":
            shown = rows.gather_every(-(-max(rows.height, 1) // MOST_MARKERS))
        else:
            shown = thin(rows, "y", MOST_OF_LINE)
        trace.update(x=shown["x"].to_list(), y=shown["y"].to_list())
    return made


def dots(svg: str) -> str:
    """The same picture with the markers of a trace as dots of one path, a tenth as long."""

    def path(group: re.Match[str]) -> str:
        found = [*_POINT.finditer(group[1])]
        looks = {(dot["radius"], dot["opacity"], dot["fill"]) for dot in found}
        if len(found) != group[1].count("<path") or len(looks) != 1:
            return group[0]
        ((radius, opacity, fill),) = looks
        places = "".join(f"M{dot['at']}h0" for dot in found)
        return (
            f'<path d="{places}" style="fill: none; stroke: {fill}; stroke-opacity: {opacity}; '
            f'stroke-width: {2 * float(radius):g}px; stroke-linecap: round;"/>'
        )

    return _POINTS.sub(path, svg)
