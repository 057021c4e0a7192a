"""Estimates of TCP Rapid's senders, by p-stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from dumbbell.analysis.connection import KEY, senders

ESTIMATED = 0  # verdict of a p-stream that gave an estimate; the others are in modules/tcp_rapid/trace.h
AVAILABLE = {
    **dict.fromkeys(KEY, pl.String),
    "t_ns": pl.Int64,
    "available_bps": pl.Float64,
    "rate_bps": pl.Float64,
    "source": pl.String,
}
# Columns of TCP_INFO that are used, if present.
AVAILABLE_FROM = ("flow", "stream", "side", "t_ns", "congestion_control", "bbr_bw_Bps", "bbr_pacing_gain")


def available(tcp_info: pl.DataFrame, rapid: pl.DataFrame | None = None) -> pl.DataFrame:
    """Available bandwidth that each sender of Rapid estimated, and its rate, in order of time.

    ``[flow, stream, t_ns, available_bps, rate_bps, source]``: AB_est, null of a p-stream that gave no
    estimate, and R_avg. Of every p-stream where the trace has the flow (table ``rapid``; ``source`` is
    ``trace``), else of the last estimate before each sample (``samples``). ``tcp_info`` needs
    :data:`AVAILABLE_FROM`: tcp_rapid tells in the form of BBR's report, the bandwidth and by what it is
    multiplied to be the rate.
    """
    found = pl.DataFrame(schema=AVAILABLE)
    if rapid is not None:
        estimated = pl.when(pl.col("verdict") == ESTIMATED).then("available_bps")
        traced = senders(rapid).with_columns(available_bps=estimated, source=pl.lit("trace"))
        found = traced.select(AVAILABLE.keys()).cast(AVAILABLE)  # type: ignore[arg-type]
    if "bbr_bw_Bps" in tcp_info.columns:
        told = senders(tcp_info).filter(pl.col("bbr_bw_Bps") > 0, congestion_control="rapid")
        sampled = told.join(found, on="flow", how="anti").select(
            *KEY,
            "t_ns",
            available_bps=8.0 * pl.col("bbr_bw_Bps"),
            rate_bps=8 * pl.col("bbr_bw_Bps") * pl.col("bbr_pacing_gain"),
            source=pl.lit("samples"),
        )
        found = pl.concat([found, sampled])
    return found.sort(*KEY, "t_ns")


def pstreams(rapid: pl.DataFrame, edges_ns: Sequence[int]) -> pl.DataFrame:
    """P-streams of each flow between consecutive edges, ``[flow, t_ns, pstreams_per_s, estimates_per_s]``.

    By the table ``rapid``, when they were acknowledged. ``t_ns`` is the middle; estimates are those p-streams
    that gave one.
    """
    edges = np.asarray(edges_ns, dtype=np.int64)
    per_s = 1e9 / np.diff(edges)
    parts = []
    for (flow,), rows in senders(rapid).group_by("flow", maintain_order=True):
        estimates = rows.filter(verdict=ESTIMATED)
        parts.append(
            pl.DataFrame(
                {
                    "flow": [flow] * len(per_s),
                    "t_ns": (edges[1:] + edges[:-1]) // 2,
                    "pstreams_per_s": np.histogram(rows["t_ns"], edges)[0] * per_s,
                    "estimates_per_s": np.histogram(estimates["t_ns"], edges)[0] * per_s,
                }
            )
        )
    none = {"flow": pl.String, "t_ns": pl.Int64, "pstreams_per_s": pl.Float64, "estimates_per_s": pl.Float64}
    return pl.concat(parts) if parts else pl.DataFrame(schema=none)
