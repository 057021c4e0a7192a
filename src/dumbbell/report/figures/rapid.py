"""Figures of flows of Rapid."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

from dumbbell.plan import Flow, PlannedPath
from dumbbell.report.figures.run import RATE, label, over_time
from dumbbell.report.figures.shapes import lines


def available(
    found: pl.DataFrame, flows: Sequence[Flow], path: PlannedPath | None, x_max_s: float
) -> go.Figure | None:
    """AB_est and R_avg of each stream, from :func:`dumbbell.analysis.available`; None without values."""
    series = {}
    for flow in flows:
        own = found.filter(pl.col("flow") == flow.name)
        for (stream,), rows in own.group_by("stream", maintain_order=True):
            name = label(flow) + f" stream {stream}" * (flow.streams > 1)
            for what, column in (("AB_est", "available_bps"), ("R_avg", "rate_bps")):
                series[f"{name}: {what}"] = rows.select("t_ns", y=pl.col(column) / 1e6)
    if not series:
        return None
    levels = [(over_time(path, lambda there, _: there.rate_bps / 1e6), RATE)] if path else []
    return lines(series, x_max_s, title="payload (Mbit/s)", unit="Mbit/s", levels=levels)


def pstreams(counted: pl.DataFrame, flows: Sequence[Flow], x_max_s: float) -> go.Figure:
    """P-streams per second of each flow while it runs, from :func:`dumbbell.analysis.pstreams`."""
    series = {}
    for flow in flows:
        own = counted.filter(pl.col("t_ns").is_between(flow.start_ns, flow.end_ns), flow=flow.name)
        series[label(flow)] = own.select("t_ns", y="pstreams_per_s")
        series[f"{label(flow)}: with an estimate"] = own.select("t_ns", y="estimates_per_s")
    return lines(series, x_max_s, title="p-streams per second", unit="per second")
