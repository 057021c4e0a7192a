"""Counters of flows, and rates between any two times.

Times are ``t_ns``: nanoseconds since the t0 of the phase. Rates are bits per second of payload (goodput).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

# A rate is given only where samples cover at least this share of its interval.
MIN_COVER = 0.9

COUNTERS = {"flow": pl.String, "stream": pl.String, "t_ns": pl.Int64, "bytes": pl.Int64}
_GOODPUT = {"flow": pl.String, "t_ns": pl.Int64, "dt_ns": pl.Int64, "goodput_bps": pl.Float64}


def grown_u32(counter: pl.Expr) -> pl.Expr:
    """Growth of a 32-bit counter since the sample before, null at the first; see :func:`unwrap_u32`."""
    return counter.cast(pl.Int64).diff() % 2**32


def unwrap_u32(counter: pl.Expr) -> pl.Expr:
    """Total growth since the first sample of a 32-bit counter that may have wrapped between samples.

    Right as long as it grows by less than 2^32 from one sample to the next: at 100 Gbit/s, 4e9 packets are
    8 minutes.
    """
    return grown_u32(counter).fill_null(0).cum_sum()


COUNTED_FROM = ("phase", "flow", "side", "stream", "t_ns", "bytes_received", "bytes_acked")


def counters(tcp_info: pl.DataFrame) -> pl.DataFrame:
    """Payload bytes delivered so far, ``[flow, stream, t_ns, bytes]``, a row for each sample.

    From the receiver's ``bytes_received`` where the flow was sampled there, else from the sender's
    ``bytes_acked``; both are 64 bits wide in the kernel. ``tcp_info`` needs :data:`COUNTED_FROM`.
    Connections of fetches, which come and go, are no stream and are left out.
    """
    tcp_info = tcp_info.filter(pl.col("stream").is_not_null())
    if tcp_info.is_empty():
        return pl.DataFrame(schema=COUNTERS)
    received = tcp_info.filter(pl.col("side") == "receiver").with_columns(bytes="bytes_received")
    acked = tcp_info.filter(pl.col("side") == "sender").with_columns(bytes="bytes_acked")
    acked = acked.join(received.select("flow").unique(), on="flow", how="anti")
    rows = pl.concat([received, acked], how="diagonal_relaxed").select(*COUNTERS)
    return rows.cast(COUNTERS).sort("flow", "stream", "t_ns")  # type: ignore[arg-type]


def sender_counter(tcp_info: pl.DataFrame, column: str) -> pl.DataFrame:
    """Growth of one of the sender's 32-bit counters, ``[flow, stream, t_ns, bytes]``, whatever its unit."""
    if column not in tcp_info.columns:
        return pl.DataFrame(schema=COUNTERS)
    rows = tcp_info.filter(pl.col("side") == "sender")
    grown = unwrap_u32(pl.col(column)).over("flow", "stream", order_by="t_ns")
    return rows.with_columns(bytes=grown).select(*COUNTERS).cast(COUNTERS)  # type: ignore[arg-type]


def datagram_counters(udp: pl.DataFrame, header_bytes: int = 0) -> pl.DataFrame:
    """Bytes of datagrams received so far, with headers of this size each: ``[flow, stream, t_ns, bytes]``."""
    received = udp.filter(pl.col("side") == "receiver")
    total = pl.col("received_bytes") + header_bytes * pl.col("received_packets")
    rows = received.with_columns(bytes=total, stream=pl.lit("0")).select(*COUNTERS)
    return rows.cast(COUNTERS).sort("flow", "t_ns")  # type: ignore[arg-type]


def goodput(counted: pl.DataFrame, edges_ns: Sequence[int]) -> pl.DataFrame:
    """Goodput of each flow between consecutive edges, ``[flow, t_ns, dt_ns, goodput_bps]``.

    t_ns is the middle. The counter is interpolated linearly at the edges, so that samples need not fall on
    them; streams of a flow add up. Intervals that samples cover by less than :data:`MIN_COVER` are left out;
    the rate is over the covered part.
    """
    edges = np.asarray(edges_ns, dtype=np.int64)
    parts = []
    for (flow,), rows in counted.group_by("flow", maintain_order=True):
        streams = [s.sort("t_ns") for _, s in rows.group_by("stream", maintain_order=True)]
        rate = np.sum([_rate(s["t_ns"].to_numpy(), s["bytes"].to_numpy(), edges) for s in streams], axis=0)
        parts.append(
            pl.DataFrame(
                {
                    "flow": [flow] * len(rate),
                    "t_ns": (edges[1:] + edges[:-1]) // 2,
                    "dt_ns": np.diff(edges),
                    "goodput_bps": rate,
                },
                schema=_GOODPUT,
            )
        )
    table = pl.concat(parts) if parts else pl.DataFrame(schema=_GOODPUT)
    return table.filter(pl.col("goodput_bps").is_not_nan())


def _rate(t_ns: NDArray[Any], total: NDArray[Any], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Bits per second between edges of one byte counter; NaN where samples do not cover the interval."""
    covered = np.diff(np.clip(edges, t_ns[0], t_ns[-1])).astype(float)
    grown = np.diff(np.interp(edges, t_ns, total))
    enough = covered >= MIN_COVER * np.diff(edges)
    rate: NDArray[np.float64] = np.where(enough, grown * 8e9 / np.where(enough, covered, 1), np.nan)
    return rate


def mean_goodput(counted: pl.DataFrame, start_ns: int, end_ns: int) -> dict[str, float]:
    """Mean goodput in bits per second over a window, by flow; flows not sampled throughout are absent."""
    rows = goodput(counted, [start_ns, end_ns])
    return dict(zip(rows["flow"], rows["goodput_bps"], strict=True))


def utilisation(rates_bps: Sequence[float], bottleneck_bps: float) -> float:
    """Sum of goodputs over the bottleneck's rate. Headers keep it below 1448/1514 = 0.956 with full
    packets.
    """
    return sum(rates_bps) / bottleneck_bps


def steps(start_ns: int, end_ns: int, width_ns: int) -> list[int]:
    """Edges from start to end, ``width_ns`` apart; a remainder at the end is left out."""
    return list(range(start_ns, end_ns + 1, width_ns))
