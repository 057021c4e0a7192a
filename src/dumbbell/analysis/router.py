"""Queues of a router."""

from __future__ import annotations

import polars as pl

from dumbbell.analysis.rates import grown_u32


def queue(qdisc: pl.DataFrame) -> pl.DataFrame:
    """Queue over time, ``[host, dev, kind, handle, t_ns, qlen_packets, backlog_bytes, dropped_packets]``.

    ``dropped_packets`` counts those since the sample before; the kernel's counter is 32 bits wide and may
    wrap.
    """
    key = ["host", "dev", "kind", "handle"]
    return (
        qdisc.sort(*key, "t_ns")
        .with_columns(dropped_packets=grown_u32(pl.col("drops")).fill_null(0).over(key))
        .select(*key, "t_ns", "qlen_packets", "backlog_bytes", "dropped_packets")
    )
