"""The time-sequence graph of a connection."""

from __future__ import annotations

from collections.abc import Iterable

import plotly.graph_objects as go
import polars as pl

from dumbbell.report.figures.base import chart
from dumbbell.studies.sequence import TimeSequence

_SENT, _AGAIN, _ACKED, _WINDOW, _SACKED = "#000000", "#D55E00", "#009E73", "#E69F00", "#CC79A7"


def time_sequence(of: TimeSequence) -> go.Figure:
    """As tcptrace draws it: segments as vertical bars between the line of ACKs and that of the window."""
    figure = chart("time since t0 (s)", f"sequence number ({of.unit})", height=460)
    unit = 1000 if of.unit == "kB" else 1

    def add(name: str, x: Iterable[float | None], y: Iterable[float | None], **style: object) -> None:
        figure.add_trace(go.Scatter(x=list(x), y=list(y), name=name, **style))

    for name, rows, colour, width in (
        ("sent", of.sent.filter(~pl.col("again")), _SENT, 1.1),
        ("sent again", of.sent.filter("again"), _AGAIN, 2.2),
        ("SACK", of.sacked, _SACKED, 1.4),
    ):
        if rows.height:
            x, y = _bars(rows, unit)
            add(name, x, y, mode="lines", line={"color": colour, "width": width})
    again = of.sent.filter("again")
    if again.height:  # a bar of one segment is short
        marker = {"symbol": "triangle-down", "size": 6, "color": _AGAIN}
        add(
            "sent again",
            again["t_ns"] / 1e9,
            again["end"] / unit,
            mode="markers",
            marker=marker,
            showlegend=False,
        )
    seen = pl.concat([of.sent["begin"], of.sent["end"], of.acked["y"]])
    lowest, highest = (int(end) if isinstance(end, int) else 0 for end in (seen.min(), seen.max()))
    room = 0.08 * (highest - lowest or 1)
    figure.update_yaxes(range=[(lowest - room) / unit, (highest + room) / unit], rangemode="normal")
    for name, rows, colour, dash in (
        ("acknowledged", of.acked, _ACKED, "solid"),
        ("receiver's window", of.window, _WINDOW, "dash"),
    ):
        if rows.height:
            line = {"color": colour, "width": 1.3, "shape": "hv", "dash": dash}
            shown = bool((rows["y"] <= highest + room).any())  # a window is often far above what is sent
            add(name, rows["t_ns"] / 1e9, rows["y"] / unit, mode="lines", line=line, showlegend=shown)
    figure.update_xaxes(range=[of.since_ns / 1e9, of.until_ns / 1e9])
    return figure


def _bars(rows: pl.DataFrame, unit: int) -> tuple[list[float | None], list[float | None]]:
    """One trace of vertical bars, with gaps between them."""
    x: list[float | None] = []
    y: list[float | None] = []
    for t_ns, begin, end in rows.select("t_ns", "begin", "end").iter_rows():
        x += [t_ns / 1e9, t_ns / 1e9, None]
        y += [begin / unit, end / unit, None]
    return x, y
