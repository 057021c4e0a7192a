"""A figure of an evaluation: how far candidates are from the bounds of criteria."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from dumbbell.report.figures.base import COLOURS, chart

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "cross", "star")
WIDEST = 10.0  # times: what is farther is drawn there
ROW = 22  # pixels


def margins(names: Sequence[str], sets: Mapping[str, Sequence[tuple[float | None, str]]]) -> go.Figure:
    """For each name a mark of each set: how many times as good as the bound, and the value as text.

    None is left out. What is better or worse than 10 times is drawn at the edge.
    """
    figure = chart("times as good as the bound (fails below 1)", "", height=100 + ROW * len(names))
    figure.update_xaxes(type="log", range=[-1.06, 1.06], tickvals=[0.1, 0.2, 0.5, 1, 2, 5, 10])
    figure.update_yaxes(
        automargin=True,
        autorange="reversed",
        tickformat="",
        rangemode="normal",
        type="category",
        categoryorder="array",
        categoryarray=list(names),
        dtick=1,
    )
    figure.update_layout(showlegend=len(sets) > 1)
    for i, (name, rows) in enumerate(sets.items()):
        known = [
            (at, ratio, told) for at, (ratio, told) in zip(names, rows, strict=True) if ratio is not None
        ]
        figure.add_trace(
            go.Scatter(
                x=[min(max(ratio, 1 / WIDEST), WIDEST) for _, ratio, _ in known],
                y=[at for at, *_ in known],
                text=[told for *_, told in known],
                name=name,
                mode="markers",
                marker={
                    "color": COLOURS[i % len(COLOURS)],
                    "symbol": SYMBOLS[i % len(SYMBOLS)],
                    "size": 9,
                },
                hovertemplate="%{y}: %{text}",
            )
        )
    figure.add_vrect(x0=0.05, x1=1, fillcolor="#d55e00", opacity=0.07, line_width=0, layer="below")
    figure.add_vline(x=1, line={"color": "#5c636b", "width": 1.2, "dash": "dash"})
    return figure
