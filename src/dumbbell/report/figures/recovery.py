"""Figures of recoveries from loss."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import polars as pl

from dumbbell.report.figures.shapes import lines

STATES = {
    1: ("Disorder", "#F0E442"),
    2: ("CWR", "#56B4E9"),
    3: ("Recovery", "#E69F00"),
    4: ("Loss", "#D55E00"),
}


def shade_states(figure: go.Figure, states: pl.DataFrame, since_ns: float, until_ns: float) -> None:
    """A background for each period of ``[t_ns, ca_state]``, of one sender, in a state other than Open."""
    changed = states.filter(pl.col("ca_state").ne_missing(pl.col("ca_state").shift()))
    spans = changed.with_columns(end_ns=pl.col("t_ns").shift(-1, fill_value=states["t_ns"].max()))
    near = spans.filter(
        pl.col("ca_state").is_in(list(STATES)), pl.col("t_ns") < until_ns, pl.col("end_ns") > since_ns
    )
    for row in near.iter_rows(named=True):
        _, colour = STATES[row["ca_state"]]
        ends = (max(row["t_ns"], since_ns) / 1e9, min(row["end_ns"], until_ns) / 1e9)
        figure.add_vrect(x0=ends[0], x1=ends[1], fillcolor=colour, opacity=0.3, line_width=0, layer="below")
    for state in sorted(near["ca_state"].unique()):
        name, colour = STATES[state]
        marker = {"symbol": "square", "size": 12, "color": colour, "opacity": 0.4}
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=marker))


def around(
    windows: pl.DataFrame,
    pipe: tuple[str, pl.DataFrame],
    states: pl.DataFrame,
    since_ns: float,
    until_ns: float,
) -> go.Figure:
    """Windows and pipe (segments) of one sender around a recovery, with its congestion states as background.

    ``windows`` is ``[t_ns, snd_cwnd, snd_ssthresh]``, ``pipe`` a name and ``[t_ns, y]``, ``states``
    ``[t_ns, ca_state]``.
    """
    name, rows = pipe
    figure = lines(
        {
            # In this order, because pipe often equals cwnd.
            name: rows,
            "ssthresh": windows.select("t_ns", y="snd_ssthresh"),
            "cwnd": windows.select("t_ns", y="snd_cwnd"),
        },
        until_ns / 1e9,
        title="segments",
        unit="segments",
        least_s=max(since_ns, 0) / 1e9,
    )
    shade_states(figure, states, since_ns, until_ns)
    return figure


def pipes(reductions: Mapping[str, pl.DataFrame]) -> go.Figure:
    """Pipe over ssthresh during one reduction for each name; ``[t_ns, y]``, ``t_ns`` since it began."""
    last_ns = pl.concat(reductions.values())["t_ns"].max()
    assert isinstance(last_ns, int)
    figure = lines(reductions, last_ns / 1e9, title="pipe / ssthresh", unit="of ssthresh")
    figure.update_xaxes(title_text="time since the reduction began (s)")
    return figure
