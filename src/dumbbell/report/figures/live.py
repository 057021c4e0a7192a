"""The figure of runs in InfluxDB."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from dumbbell.report.figures.base import FONT, line_style


def of_runs(runs: Mapping[str, pl.DataFrame]) -> go.Figure:
    """Goodput, window and RTT of several runs; a menu selects the one that is shown.

    Tables ``[flow, before_s, goodput_bps, snd_cwnd, srtt_us]``; ``before_s`` is negative.
    """
    rows = (
        ("goodput (Mbit/s)", "goodput_bps", 1e6),
        ("cwnd (segments)", "snd_cwnd", 1),
        ("RTT (ms)", "srtt_us", 1e3),
    )
    figure = make_subplots(rows=len(rows), cols=1, shared_xaxes=True, vertical_spacing=0.04)
    owners = []
    for number, (run, table) in enumerate(runs.items()):
        for i, ((flow,), own) in enumerate(table.group_by("flow", maintain_order=True)):
            for row, (_, column, scale) in enumerate(rows, start=1):
                shown = own.drop_nulls(column)
                if shown.is_empty():
                    continue
                trace = go.Scatter(
                    x=shown["before_s"].round(3).to_list(),
                    y=(shown[column] / scale).to_list(),
                    name=str(flow),
                    legendgroup=str(flow),
                    showlegend=row == 1,
                    visible=number == 0,
                    line=line_style(i),
                    mode="lines",
                )
                figure.add_trace(trace, row=row, col=1)
                owners.append(run)
    picks = [
        {"label": run, "method": "update", "args": [{"visible": [owner == run for owner in owners]}]}
        for run in runs
    ]
    figure.update_layout(
        template="simple_white",
        font={"family": FONT, "size": 13, "color": "#1a1c1f"},
        height=760,
        margin={"l": 70, "r": 16, "t": 84, "b": 46},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "bgcolor": "rgba(0,0,0,0)"},
        hovermode="x unified",
        updatemenus=[{"buttons": picks, "x": 0, "xanchor": "left", "y": 1.12, "yanchor": "bottom"}],
    )
    figure.update_xaxes(showgrid=True, gridcolor="#eceff2", zeroline=False)
    figure.update_xaxes(title_text="time before the last sample (s)", row=len(rows), col=1)
    for row, (title, _, _) in enumerate(rows, start=1):
        figure.update_yaxes(
            title_text=title, rangemode="tozero", gridcolor="#eceff2", showgrid=True, row=row, col=1
        )
    return figure
