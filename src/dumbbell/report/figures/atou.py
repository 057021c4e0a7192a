"""Figures of atou, from simulations and from runs."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import polars as pl

from dumbbell.report.figures.shapes import lines

COLUMNS = {
    "snd_cwnd": ("cwnd (segments)", "segments", 1),
    "srtt_us": ("smoothed RTT (ms)", "ms", 1000),
}


def simulated_goodput(samples: Mapping[str, pl.DataFrame], x_max_s: float) -> go.Figure:
    """Acknowledged payload between two samples ``[t_ns, bytes_acked]`` of each transfer."""
    rate_mbps = pl.col("bytes_acked").diff() * 8e3 / pl.col("t_ns").diff()
    return _goodput({name: rows.select("t_ns", y=rate_mbps) for name, rows in samples.items()}, x_max_s)


def goodput(rates: Mapping[str, pl.DataFrame], x_max_s: float) -> go.Figure:
    """``[t_ns, goodput_bps]`` of each flow since it began."""
    series = {name: rows.select("t_ns", y=pl.col("goodput_bps") / 1e6) for name, rows in rates.items()}
    return _goodput(series, x_max_s)


def _goodput(series: Mapping[str, pl.DataFrame], x_max_s: float) -> go.Figure:
    return lines(series, x_max_s, title="goodput (Mbit/s)", unit="Mbit/s")


def state(samples: Mapping[str, pl.DataFrame], column: str, x_max_s: float) -> go.Figure:
    """One of :data:`COLUMNS` at each sample of each sender."""
    title, unit, scale = COLUMNS[column]
    series = {name: rows.select("t_ns", y=pl.col(column) / scale) for name, rows in samples.items()}
    return lines(series, x_max_s, title=title, unit=unit)
