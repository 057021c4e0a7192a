"""Figures of many points: over levels, distributions, matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import plotly.graph_objects as go
import polars as pl

from dumbbell.report.figures.base import COLOURS, chart, line_style

STEPS = 400  # most steps of a distribution that are drawn
SPREADS = 8  # from this ratio on of the largest level to the smallest, an axis may be logarithmic
WHOLE = 1000  # from here on the value of a cell is written without digits after the point
CLOSEST = 0.05  # of the range of an axis: closer levels would have texts upon each other
GREY = "#5c636b"


class Axis(NamedTuple):
    """An axis of levels: its title, their texts, and their numbers if they are quantities of one kind."""

    title: str
    texts: list[str]
    numbers: list[float] | None = None

    @property
    def kind(self) -> Literal["linear", "log", "category"]:
        """Categories without numbers, or where numbers are too close to each other for their texts.

        Logarithmic if numbers span a wide range, and are spread more evenly then.
        """
        numbers = np.sort(self.numbers or [])
        if not numbers.size:
            return "category"
        kinds: dict[Literal["linear", "log"], float] = {"linear": _closest(numbers)}
        if numbers[0] > 0 and numbers[-1] >= SPREADS * numbers[0]:
            kinds["log"] = _closest(np.log(numbers))
        best = max(kinds, key=kinds.__getitem__)
        return best if kinds[best] >= CLOSEST else "category"


def _closest(numbers: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """The smallest distance of sorted numbers, as a share of their range."""
    return float(np.diff(numbers).min() / (numbers[-1] - numbers[0])) if numbers.size > 1 else 1.0


def _set_levels(figure: go.Figure, axis: Axis) -> None:
    figure.update_xaxes(title_text=axis.title, type=axis.kind)
    if axis.kind == "category":
        figure.update_xaxes(categoryorder="array", categoryarray=axis.texts)
    else:
        figure.update_xaxes(tickvals=axis.numbers, ticktext=axis.texts)


def curves(series: Mapping[str, pl.DataFrame], axis: Axis, *, title: str, unit: str) -> go.Figure:
    """A line for each name through ``[level, value, low, high]``: medians with their intervals, if known."""
    figure = chart("", title)
    _set_levels(figure, axis)
    named = axis.kind == "category"
    figure.update_layout(
        scattermode="group" if named else "overlay", scattergap=0.6, showlegend=len(series) > 1
    )
    x_of = dict(zip(axis.texts, axis.texts if named else axis.numbers or [], strict=True))
    for i, (name, rows) in enumerate(series.items()):
        value = rows["value"]
        figure.add_trace(
            go.Scatter(
                x=[x_of[text] for text in rows["level"]],
                y=value.to_list(),
                name=name,
                mode="markers" if named else "lines+markers",  # nothing is between categories
                line=line_style(i),
                marker={"size": 6, "symbol": _symbol(i), "color": COLOURS[i % len(COLOURS)]},
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": (rows["high"] - value).fill_null(0).to_list(),
                    "arrayminus": (value - rows["low"]).fill_null(0).to_list(),
                    "thickness": 1.2,
                    "width": 3,
                },
                hovertemplate=f"%{{y:.4~g}} {unit}",
            )
        )
    return figure


def heat_map(
    cells: Mapping[tuple[str, str], float],
    columns: Axis,
    rows: Axis,
    *,
    title: str,
    unit: str,
    scale: Literal["values", "shares", "harm"] = "values",
) -> go.Figure:
    """A value for each pair of a column and a row, written into its cell; cells without one stay empty.

    ``shares`` are white at one half, ``harm`` at 0: both go to 1.
    """
    z = [[cells.get((column, row)) for column in columns.texts] for row in rows.texts]
    texts = [["" if value is None else _told(value, scale) for value in line] for line in z]
    figure = chart(columns.title, rows.title, height=120 + 46 * max(len(rows.texts), 4))
    looks = {
        "values": {
            "colorscale": "Cividis",
            "zmin": min(0, *cells.values()),
            "zmax": max(cells.values()) or 1,
        },
        "shares": {"colorscale": "RdBu", "zmin": 0, "zmax": 1},
        "harm": {"colorscale": "OrRd", "zmin": 0, "zmax": 1},
    }
    figure.add_trace(
        go.Heatmap(
            x=columns.texts,
            y=rows.texts,
            z=z,
            text=texts,
            texttemplate="%{text}",
            hoverongaps=False,
            xgap=1,
            ygap=1,
            colorbar={"title": {"text": title, "side": "right"}, "thickness": 12, "outlinewidth": 0},
            hovertemplate=f"%{{x}}, %{{y}}: %{{z:.4~g}} {unit}<extra></extra>",
            **looks[scale],
        )
    )
    figure.update_xaxes(type="category", showgrid=False, ticks="", showline=False)
    figure.update_yaxes(type="category", showgrid=False, ticks="", showline=False, tickformat="")
    figure.update_yaxes(ticklabelstandoff=4)
    if scale != "values":
        figure.update_yaxes(autorange="reversed")
    figure.update_layout(showlegend=False)
    return figure


def tradeoff(sets: Mapping[str, pl.DataFrame], *, x_title: str, y_title: str) -> go.Figure:
    """For each name its points ``[x, y]``, pale, and their medians with the middle half in each direction."""
    figure = chart(x_title, y_title, height=380)
    figure.update_xaxes(rangemode="tozero")
    figure.update_layout(showlegend=len(sets) > 1)
    for i, (name, rows) in enumerate(sets.items()):
        colour = COLOURS[i % len(COLOURS)]
        marker = {"color": colour, "symbol": _symbol(i)}
        x, y = (rows[axis].drop_nulls() for axis in ("x", "y"))
        figure.add_trace(
            go.Scatter(
                x=rows["x"].to_list(),
                y=rows["y"].to_list(),
                name=name,
                mode="markers",
                marker=marker | {"size": 5, "opacity": 0.35},
                showlegend=False,
                hovertemplate="%{x:.4~g}, %{y:.4~g}",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=[x.median()],
                y=[y.median()],
                name=name,
                mode="markers",
                marker=marker | {"size": 10, "line": {"width": 1, "color": "#ffffff"}},
                error_x=_middle(x, colour),
                error_y=_middle(y, colour),
                hovertemplate="median %{x:.4~g}, %{y:.4~g}",
            )
        )
    figure.add_annotation(
        x=0.01,
        y=0.99,
        xref="paper",
        yref="paper",
        text="↖ better",
        font={"size": 11.5, "color": GREY},
        showarrow=False,
        xanchor="left",
        yanchor="top",
    )
    return figure


def distributions(sets: Mapping[str, pl.Series], *, title: str, unit: str) -> go.Figure:
    """The share of the values of each set that are not larger; at most :data:`STEPS` steps are drawn."""
    figure = chart(title, "share of values")
    for i, (name, values) in enumerate(sets.items()):
        known = np.sort(values.drop_nulls().to_numpy())
        if not known.size:
            continue
        at = np.unique(np.linspace(0, known.size - 1, min(STEPS, known.size)).round().astype(int))
        figure.add_trace(
            go.Scatter(
                x=[float(known[0]), *known[at].tolist()],
                y=[0.0, *((at + 1) / known.size).tolist()],
                name=name,
                mode="lines",
                line=line_style(i) | {"shape": "hv"},
                hovertemplate=f"%{{y:.1%}} up to %{{x:.4~g}} {unit}",
            )
        )
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    figure.update_layout(showlegend=len(sets) > 1)
    return figure


def boxes(sets: Mapping[str, Mapping[str, pl.Series]], axis: Axis, *, title: str) -> go.Figure:
    """For each level, by its text, a box of each set: quartiles, whiskers of 1.5 times their distance."""
    figure = chart("", title, height=380)
    _set_levels(figure, axis._replace(numbers=None))
    for i, (name, by_level) in enumerate(sets.items()):
        pairs = [(text, value) for text in axis.texts for value in by_level.get(text, [])]
        figure.add_trace(
            go.Box(
                x=[text for text, _ in pairs],
                y=[value for _, value in pairs],
                name=name,
                marker={"color": COLOURS[i % len(COLOURS)], "size": 4},
                line={"width": 1.4},
                boxpoints="outliers",
            )
        )
    figure.update_layout(boxmode="group", showlegend=len(sets) > 1)
    return figure


def bands(series: Mapping[str, pl.DataFrame], *, x_title: str, y_title: str) -> go.Figure:
    """A line for each name through ``[x, y]``, and a pale band from ``low`` to ``high``."""
    figure = chart(x_title, y_title)
    figure.update_xaxes(rangemode="tozero")
    figure.update_layout(showlegend=len(series) > 1)
    for i, (name, rows) in enumerate(series.items()):
        style = line_style(i)
        red, green, blue = (int(style["color"][at : at + 2], 16) for at in (1, 3, 5))
        edges = [*rows["high"], *reversed(rows["low"].to_list())]
        figure.add_trace(
            go.Scatter(
                x=[*rows["x"], *reversed(rows["x"].to_list())],
                y=edges,
                name=name,
                mode="lines",
                line={"width": 0},
                fill="toself",
                fillcolor=f"rgba({red},{green},{blue},.15)",
                showlegend=False,
                hoverinfo="skip",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=rows["x"].to_list(),
                y=rows["y"].to_list(),
                name=name,
                mode="lines",
                line=style,
                hovertemplate="%{y:.4~g}",
            )
        )
    return figure


def stacks(names: Sequence[str], shares: Mapping[str, Sequence[float | None]], *, title: str) -> go.Figure:
    """A bar for each name, of parts that add up to 1."""
    figure = chart(title, "", height=110 + 34 * len(names))
    for i, (part, values) in enumerate(shares.items()):
        figure.add_trace(
            go.Bar(
                x=list(values),
                y=list(names),
                name=part,
                orientation="h",
                marker={"color": [*COLOURS[:6], "#b6bcc2"][i % len(COLOURS)]},
                hovertemplate="%{x:.1%}",
            )
        )
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    figure.update_yaxes(autorange="reversed", tickformat="", showgrid=False)
    figure.update_layout(barmode="stack", legend={"traceorder": "normal"})
    return figure


def _told(value: float, scale: str) -> str:
    """A value as short as a cell needs it."""
    if scale != "values":
        return f"{value:.2f}"
    return f"{value:.3g}" if abs(value) < WHOLE else f"{value:.0f}"


def _symbol(index: int) -> str:
    """Of the index-th line; where colours are used again, symbols are others."""
    symbols = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
    return symbols[(index + index // len(COLOURS)) % len(symbols)]


def _middle(values: pl.Series, colour: str) -> dict[str, object]:
    """Error bars over the middle half of the values, around their median."""
    low, middle, high = (values.quantile(q, "linear") or 0 for q in (0.25, 0.5, 0.75))
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - middle],
        "arrayminus": [middle - low],
        "color": colour,
        "thickness": 1.4,
        "width": 0,
    }
