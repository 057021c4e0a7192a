"""General figures: lines, points, bars, intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import plotly.graph_objects as go
import polars as pl

from dumbbell.report.figures.base import COLOURS, MAX_POINTS, Steps, add_level, add_line, axes, chart, thin

FEW = 200  # points that are large enough to be counted


def lines(
    series: Mapping[str, pl.DataFrame],
    x_max_s: float,
    *,
    title: str,
    unit: str,
    least_s: float = 0,
    levels: Sequence[tuple[Steps, str]] = (),
) -> go.Figure:
    """One line for each name, of tables ``[t_ns, y]``; thinned, but with all extremes."""
    figure = axes(x_max_s, title)
    for i, (name, rows) in enumerate(series.items()):
        shown = rows.filter(pl.col("y").is_not_null())
        add_line(figure, thin(shown, "y"), "y", name=name, index=i, unit=unit)
    for steps, text in levels:
        add_level(figure, steps, text)
    if least_s:
        figure.update_xaxes(range=[least_s, x_max_s])
    return figure


def scatter(
    sets: Mapping[str, pl.DataFrame],
    *,
    x_title: str,
    y_title: str,
    lines: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({}),
) -> go.Figure:
    """Points of tables ``[x, y]``, at most :data:`MAX_POINTS` of each, and lines through given points."""
    figure = chart(x_title, y_title)
    figure.update_xaxes(rangemode="tozero")
    for i, (name, rows) in enumerate(sets.items()):
        shown = rows.drop_nulls(["x", "y"])
        shown = shown.sample(min(MAX_POINTS, shown.height), seed=1)  # the same each time
        look = {"size": 8, "opacity": 0.8} if shown.height <= FEW else {"size": 4, "opacity": 0.45}
        figure.add_trace(
            go.Scatter(
                x=shown["x"].to_list(),
                y=shown["y"].to_list(),
                name=name,
                mode="markers",
                marker={"color": COLOURS[i % len(COLOURS)], **look},
                hovertemplate="%{x:.4~g}, %{y:.4~g}",
            )
        )
    for name, points in lines.items():
        figure.add_trace(
            go.Scatter(
                x=[x for x, _ in points],
                y=[y for _, y in points],
                name=name,
                mode="lines",
                line={"color": "#000000", "width": 1.8, "dash": "dash"},
                hoverinfo="skip",
            )
        )
    return figure


def histogram(values: pl.Series, *, title: str, bins: int = 60) -> go.Figure:
    """How many values fall into each bin; the bins have equal widths."""
    figure = chart(title, "samples")
    counted, edges = np.histogram(values.drop_nulls().to_numpy(), bins=bins)
    figure.update_layout(showlegend=False, bargap=0)
    figure.add_trace(
        go.Bar(
            x=((edges[1:] + edges[:-1]) / 2).tolist(),
            y=counted.tolist(),
            width=np.diff(edges).tolist(),
            marker={"color": COLOURS[0]},
            hovertemplate="%{x:.4~g}: %{y}",
        )
    )
    return figure


def intervals(names: Sequence[str], rows: pl.DataFrame, *, title: str) -> go.Figure:
    """A point with its interval for each name, from a table ``[ratio, low, high]``; 1 means no difference."""
    figure = chart(title, "", height=90 + 24 * len(names))
    figure.update_layout(showlegend=False, margin={"l": 10})
    figure.update_yaxes(automargin=True, autorange="reversed", tickformat="")
    ratio = rows["ratio"]
    figure.add_trace(
        go.Scatter(
            x=ratio.to_list(),
            y=list(names),
            mode="markers",
            marker={"color": COLOURS[0], "size": 8},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": (rows["high"] - ratio).fill_null(0).to_list(),
                "arrayminus": (ratio - rows["low"]).fill_null(0).to_list(),
            },
            hovertemplate="%{y}: %{x:.4~g}",
        )
    )
    figure.add_vline(x=1, line={"color": "#5c636b", "width": 1.3, "dash": "dot"})
    return figure


def bars(
    names: Sequence[str], sets: Mapping[str, Sequence[pl.Series]], *, title: str, scale: float
) -> go.Figure:
    """For each name one bar per set: the mean over ``scale``, with the standard deviation up and down."""
    figure = chart("", title, height=380)
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="nonnegative")
    figure.update_layout(barmode="group")
    for i, (label_, values) in enumerate(sets.items()):
        arrays = [own.to_numpy() / scale for own in values]
        means = [float(own.mean()) if own.size else None for own in arrays]
        spread = [float(own.std(ddof=1)) if own.size > 1 else 0 for own in arrays]
        figure.add_trace(
            go.Bar(
                x=list(names),
                y=means,
                name=label_,
                marker={"color": COLOURS[i]},
                error_y={"type": "data", "array": spread, "thickness": 1.2},
                customdata=[own.size for own in arrays],
                hovertemplate="%{y:.4~g} ms, mean of %{customdata}",
            )
        )
    return figure
