"""Axes, lines and reference lines of all figures, in the colours of Okabe and Ito."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

# M. Okabe, K. Ito, "Color Universal Design", 2008, without yellow, which is too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("solid", "dash", "dot")
MAX_POINTS = 4000  # of a series: more than there are pixels, few enough to mail a report
LONG_TITLE = 24  # from this length (characters) on, the unit of a vertical axis gets its own line

Steps = Sequence[tuple[float, float]]  # a value, and the time (s) from which on it applies

FONT = 'system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif'


def axes(x_max_s: float, y_title: str, *, rows: int = 1, height: int = 330) -> go.Figure:
    """An empty figure over time, up to x_max_s; with two rows the second is the lower one."""
    heights = [1.0] if rows == 1 else [0.68, 0.32]
    figure = make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.07, row_heights=heights)
    figure.update_layout(
        template="simple_white",
        font={"family": FONT, "size": 13, "color": "#1a1c1f"},
        height=height,
        margin={"l": 70, "r": 16, "t": 34, "b": 46},
        hovermode="x unified",
        hoverlabel={"font_size": 12},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "bgcolor": "rgba(0,0,0,0)"},
        showlegend=True,
    )
    figure.update_xaxes(
        range=[0, x_max_s], showgrid=True, gridcolor="#eceff2", ticks="outside", zeroline=False
    )
    figure.update_yaxes(
        rangemode="tozero", showgrid=True, gridcolor="#eceff2", title_standoff=8, tickformat="~g"
    )
    figure.update_xaxes(title_text="time since t0 (s)", row=rows, col=1)
    if len(y_title) > LONG_TITLE:
        y_title = y_title.replace(" (", "<br>(")
    figure.update_yaxes(title_text=y_title, automargin=True, row=1, col=1)
    return figure


def chart(x_title: str, y_title: str, *, height: int = 330) -> go.Figure:
    """An empty figure of anything but time."""
    figure = axes(1, y_title, height=height)
    figure.update_xaxes(title_text=x_title, range=None)
    figure.update_layout(hovermode="closest")
    return figure


def line_style(index: int) -> dict[str, Any]:
    """Colour, width and dashes of the index-th line."""
    dash = DASHES[index // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[index % len(COLOURS)], "width": 1.7, "dash": dash}


def add_line(figure: go.Figure, rows: pl.DataFrame, y: str, *, name: str, index: int, unit: str) -> None:
    """A column ``y`` of a table with ``t_ns``, in the index-th colour."""
    figure.add_trace(
        go.Scatter(
            x=(rows["t_ns"] / 1e9).round(4).to_list(),
            y=rows[y].to_list(),
            name=name,
            mode="lines",
            line=line_style(index),
            hovertemplate=f"%{{y:.4~g}} {unit}",
        ),
        row=1,
        col=1,
    )


def add_steps(figure: go.Figure, steps: Steps, *, name: str, unit: str) -> None:
    """A line of a value that is constant between steps, with a name in the legend."""
    figure.add_trace(
        go.Scatter(
            x=[at_s for at_s, _ in steps],
            y=[y for _, y in steps],
            name=name,
            mode="lines",
            line={"color": "#000000", "width": 1.5, "dash": "dash", "shape": "hv"},
            hovertemplate=f"%{{y:.4~g}} {unit}",
        ),
        row=1,
        col=1,
    )


def add_level(figure: go.Figure, steps: Steps, text: str) -> None:
    """A reference line, with its label at the right above it."""
    x_max_s = figure.layout.xaxis.range[1]
    edges = [*steps, (x_max_s, steps[-1][1])]
    figure.add_trace(
        go.Scatter(
            x=[at_s for at_s, _ in edges],
            y=[y for _, y in edges],
            mode="lines",
            line={"color": "#5c636b", "width": 1.3, "dash": "dot", "shape": "hv"},
            showlegend=False,
            hoverinfo="skip",
        ),
        row=1,
        col=1,
    )
    figure.add_annotation(
        x=x_max_s,
        y=steps[-1][1],
        text=text,
        font={"size": 11.5, "color": "#5c636b"},
        bgcolor="rgba(255,255,255,.4)",
        showarrow=False,
        xanchor="right",
        yanchor="bottom",
        row=1,
        col=1,
    )


def thin(rows: pl.DataFrame, y: str, most: int = MAX_POINTS) -> pl.DataFrame:
    """The lowest and the highest sample of each of ``most`` / 2 stretches: no extreme is lost."""
    if rows.height <= most:
        return rows
    stretch = pl.int_range(pl.len()) * (most // 2) // pl.len()
    grouped = rows.with_columns(stretch=stretch).group_by("stretch", maintain_order=True)
    extremes = grouped.agg(low=pl.col(y).arg_min(), high=pl.col(y).arg_max(), first=pl.len().cast(pl.Int64))
    starts = extremes["first"].cum_sum().shift(1, fill_value=0)
    picked = pl.concat([starts + extremes["low"], starts + extremes["high"]]).unique().sort()
    return rows[picked]
