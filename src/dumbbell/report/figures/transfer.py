"""Figures of one long transfer."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import polars as pl

from dumbbell.analysis import Kink
from dumbbell.report.figures.shapes import lines, scatter


def iperf3(rates: Mapping[str, pl.DataFrame], x_max_s: float) -> go.Figure:
    """Rates in the reports of both ends, ``[t_ns, y]`` in Mbit/s."""
    return lines(rates, x_max_s, title="throughput (Mbit/s)", unit="Mbit/s")


def throughput(samples: pl.DataFrame, x_max_s: float) -> go.Figure:
    """Rate between two samples, of :func:`dumbbell.analysis.samples`."""
    rows = samples.select("t_ns", y=pl.col("throughput_bps") / 1e6)
    return lines({"sent": rows}, x_max_s, title="rate (Mbit/s)", unit="Mbit/s")


def windows(samples: pl.DataFrame, x_max_s: float) -> go.Figure:
    """Window and slow-start threshold at each sample."""
    columns = {"cwnd": "cwnd_bytes", "ssthresh": "ssthresh_bytes"}
    series = {name: samples.select("t_ns", y=pl.col(column) / 1e6) for name, column in columns.items()}
    return lines(series, x_max_s, title="window (MB)", unit="MB")


def rtts(samples: pl.DataFrame, x_max_s: float) -> go.Figure:
    """Smoothed and least round-trip times at each sample, and the latest one where known."""
    columns = {"smoothed": "srtt_ns", "least": "min_rtt_ns", "latest": "latest_rtt_ns"}
    series = {
        name: samples.select("t_ns", y=pl.col(column) / 1e6)
        for name, column in columns.items()
        if column in samples.columns
    }
    return lines(series, x_max_s, title="round-trip time (ms)", unit="ms")


def totals(series: Mapping[str, pl.DataFrame], x_max_s: float) -> go.Figure:
    """Totals of signals over time, ``[t_ns, y]``."""
    return lines(series, x_max_s, title="total", unit="")


def second_by_second(seconds: pl.DataFrame, x: str, y: str) -> go.Figure:
    """A point for each second: the number of one signal, ``x``, and of another, ``y``."""
    return scatter({"a second each": seconds}, x_title=f"{x} in a second", y_title=f"{y} in a second")


def cwnd_and_rate(rows: pl.DataFrame, name: str, kink: Kink | None) -> go.Figure:
    """Rate (Mbit/s, ``y``) against window (MB, ``x``), and the two straight lines that meet at a kink."""
    fit = {}
    if kink:
        left, right = float(rows["x"].min()), float(rows["x"].max())  # type: ignore[arg-type]
        ends = [(x, kink.y + slope * (x - kink.x)) for x, slope in ((left, kink.below), (right, kink.above))]
        fit = {"two straight lines": [ends[0], (kink.x, kink.y), ends[1]]}
    return scatter(
        {name: rows}, x_title="cwnd (MB)", y_title="rate since the sample before (Mbit/s)", lines=fit
    )
