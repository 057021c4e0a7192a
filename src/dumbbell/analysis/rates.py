"""Counters of flows, and rates between any two times.

Times are ``t_ns``: nanoseconds since the t0 of the phase. Rates are bits per second of payload (goodput).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

# An interval has a rate if samples cover at least this share of it.
MIN_COVER = 0.9

STREAM = {"flow": pl.String, "stream": pl.String}
COUNTERS = {**STREAM, "t_ns": pl.Int64, "bytes": pl.Int64}
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


COUNTED_FROM = ("phase", "flow", "side", "stream", "t_ns", "bytes_received", "bytes_acked", "final")


def counters(tcp_info: pl.DataFrame) -> pl.DataFrame:
    """Payload bytes delivered so far, ``[flow, stream, t_ns, bytes]``, a row for each sample.

    From the receiver's ``bytes_received`` where the flow was sampled there, else from the sender's
    ``bytes_acked``; both are 64 bits wide in the kernel. ``tcp_info`` needs :data:`COUNTED_FROM`.
    Connections of fetches, which come and go, are no stream and are left out.
    """
    rows = _counted(tcp_info).select(*COUNTERS)
    return rows.cast(COUNTERS).sort("flow", "stream", "t_ns")  # type: ignore[arg-type]


def _counted(tcp_info: pl.DataFrame) -> pl.DataFrame:
    """Rows of the end of each flow that counts it, with ``bytes``."""
    tcp_info = tcp_info.filter(pl.col("stream").is_not_null())
    received = tcp_info.filter(pl.col("side") == "receiver").with_columns(bytes="bytes_received")
    received = received.filter(pl.col("bytes").is_not_null())  # files of other tools may not tell it
    acked = tcp_info.filter(pl.col("side") == "sender").with_columns(bytes="bytes_acked")
    acked = acked.join(received.select("flow").unique(), on="flow", how="anti")
    both = pl.concat([received, acked], how="diagonal_relaxed")
    return both.filter(pl.col("bytes").is_not_null())


def ended(tcp_info: pl.DataFrame) -> pl.DataFrame:
    """Streams of :func:`counters` whose last row has the final count, ``[flow, stream]``."""
    if "final" not in tcp_info.columns:
        return pl.DataFrame(schema=STREAM)
    return _counted(tcp_info).filter("final").select(STREAM.keys()).cast(STREAM).unique()  # type: ignore[arg-type]


def sender_counter(tcp_info: pl.DataFrame, column: str) -> pl.DataFrame:
    """Growth of one of the sender's 32-bit counters, ``[flow, stream, t_ns, bytes]``, whatever its unit."""
    if column not in tcp_info.columns:
        return pl.DataFrame(schema=COUNTERS)
    rows = tcp_info.filter(pl.col("side") == "sender")
    grown = unwrap_u32(pl.col(column)).over("flow", "stream", order_by="t_ns")
    return rows.with_columns(bytes=grown).select(*COUNTERS).cast(COUNTERS)  # type: ignore[arg-type]


def datagram_counters(udp: pl.DataFrame, header_bytes: int = 0) -> pl.DataFrame:
    """Bytes of datagrams received so far, with headers of this size each: ``[flow, stream, t_ns, bytes]``."""
    return _received(udp, pl.col("received_bytes") + header_bytes * pl.col("received_packets"))


def receiver_counter(udp: pl.DataFrame, column: str) -> pl.DataFrame:
    """One of the counters of receivers of datagrams, ``[flow, stream, t_ns, bytes]``, whatever its unit."""
    return _received(udp, pl.col(column)) if column in udp.columns else pl.DataFrame(schema=COUNTERS)


def _received(udp: pl.DataFrame, total: pl.Expr) -> pl.DataFrame:
    received = udp.filter(pl.col("side") == "receiver")
    stream = pl.col("stream") if "stream" in udp.columns else pl.lit("0").alias("stream")
    rows = received.with_columns(stream, bytes=total).select(*COUNTERS).filter(pl.col("bytes").is_not_null())
    return rows.cast(COUNTERS).sort("flow", "stream", "t_ns")  # type: ignore[arg-type]


def interval_counters(
    flow: str, intervals: Iterable[tuple[int, int, int]], life_ns: tuple[int, int]
) -> pl.DataFrame:
    """Bytes that a receiver counted in consecutive intervals, ``(begin, end, bytes)``, as a counter.

    What an interval counted is spread evenly over the part of it in which the flow ran. It can be a part,
    because the receiver's intervals begin when it likes.
    """
    rows, total = [], 0
    for begin, end, count in intervals:
        inside = max(begin, life_ns[0]), min(end, life_ns[1])
        since, until = inside if inside[0] < inside[1] else (begin, end)
        rows += [(flow, "0", at, total) for at in (begin, since)]
        total += count
        rows += [(flow, "0", at, total) for at in (until, end)]
    return pl.DataFrame(rows, schema=COUNTERS, orient="row")


def over_life(
    counted: pl.DataFrame, ends: pl.DataFrame, lives_ns: Mapping[str, tuple[int, int]]
) -> pl.DataFrame:
    """Counters that reach from the start of each flow's life to its end where that is known.

    At its start a stream had delivered nothing. Streams with a final count (``ends``, as of :func:`ended`)
    deliver nothing after it.
    """
    lives = pl.DataFrame(
        [(flow, *life) for flow, life in lives_ns.items()],
        schema={"flow": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64},
        orient="row",
    )
    at = pl.col("t_ns")
    streams = counted.group_by(STREAM.keys()).agg(
        first_ns=at.min(), last_ns=at.max(), bytes=pl.col("bytes").sort_by(at).last()
    )
    # A stream that ended counts until the last stream of its flow has ended.
    until_ns = pl.max_horizontal("end_ns", pl.col("last_ns").max().over("flow"))
    streams = streams.join(lives, on="flow").with_columns(until_ns=until_ns)
    late = streams.filter(pl.col("first_ns") > pl.col("start_ns"))
    over = streams.join(ends, on=list(STREAM), how="semi").filter(pl.col("last_ns") < pl.col("until_ns"))
    parts = [
        counted.select(*COUNTERS),
        late.select(*STREAM, t_ns="start_ns", bytes=pl.lit(0, pl.Int64)),
        over.select(*STREAM, t_ns="until_ns", bytes="bytes"),
    ]
    return pl.concat(parts).sort("flow", "stream", "t_ns", "bytes")


def goodput(counted: pl.DataFrame, edges_ns: Sequence[int], *, within_ns: int | None = None) -> pl.DataFrame:
    """Goodput of each flow between consecutive edges, ``[flow, t_ns, dt_ns, goodput_bps]``.

    t_ns is the middle. The counter is interpolated linearly at the edges, so that samples need not fall on
    them; streams of a flow add up. Intervals that samples cover by less than :data:`MIN_COVER`, or all but
    more than ``within_ns``, are left out; the rate is over the covered part.
    """
    edges = np.asarray(edges_ns, dtype=np.int64)
    widths = np.diff(edges)
    least = MIN_COVER * widths if within_ns is None else np.maximum(MIN_COVER * widths, widths - within_ns)
    parts = []
    for (flow,), rows in counted.group_by("flow", maintain_order=True):
        streams = [s.sort("t_ns") for _, s in rows.group_by("stream", maintain_order=True)]
        rate = np.sum(
            [_rate(s["t_ns"].to_numpy(), s["bytes"].to_numpy(), edges, least) for s in streams], axis=0
        )
        parts.append(
            pl.DataFrame(
                {
                    "flow": [flow] * len(rate),
                    "t_ns": (edges[1:] + edges[:-1]) // 2,
                    "dt_ns": widths,
                    "goodput_bps": rate,
                },
                schema=_GOODPUT,
            )
        )
    table = pl.concat(parts) if parts else pl.DataFrame(schema=_GOODPUT)
    return table.filter(pl.col("goodput_bps").is_not_nan())


def _rate(
    t_ns: NDArray[Any], total: NDArray[Any], edges: NDArray[np.int64], least: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Bits per second between edges of one byte counter; NaN where samples cover less than the least."""
    covered = np.diff(np.clip(edges, t_ns[0], t_ns[-1])).astype(float)
    grown = np.diff(np.interp(edges, t_ns, total))
    enough = covered >= least
    rate: NDArray[np.float64] = np.where(enough, grown * 8e9 / np.where(enough, covered, 1), np.nan)
    return rate


def mean_goodput(
    counted: pl.DataFrame, start_ns: int, end_ns: int, *, within_ns: int = 0
) -> dict[str, float]:
    """Mean goodput in bits per second over a window, by flow.

    Flows are absent if samples miss more than ``within_ns`` of the window.
    """
    rows = goodput(counted, [start_ns, end_ns], within_ns=within_ns)
    return dict(zip(rows["flow"], rows["goodput_bps"], strict=True))


def utilisation(rates_bps: Sequence[float], bottleneck_bps: float) -> float:
    """Sum of goodputs over the bottleneck's rate. Headers keep it below 1448/1514 = 0.956 with full
    packets.
    """
    return sum(rates_bps) / bottleneck_bps


def steps(start_ns: int, end_ns: int, width_ns: int) -> list[int]:
    """Edges from start to end, ``width_ns`` apart; a remainder at the end is left out."""
    return list(range(start_ns, end_ns + 1, width_ns))


def bdp_bytes(rate_bps: float, rtt_ns: float) -> float:
    """Bandwidth-delay product."""
    return rate_bps * rtt_ns / 8e9
