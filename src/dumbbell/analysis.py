"""Pure functions from tidy tables to the numbers and series that TCP people look at.

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

_COUNTERS = {"flow": pl.String, "stream": pl.String, "t_ns": pl.Int64, "bytes": pl.Int64}
_GOODPUT = {"flow": pl.String, "t_ns": pl.Int64, "dt_ns": pl.Int64, "goodput_bps": pl.Float64}


def unwrap_u32(counter: pl.Expr) -> pl.Expr:
    """Total growth since the first sample of a 32-bit counter that may have wrapped between samples.

    Right as long as it grows by less than 2^32 from one sample to the next: at 100 Gbit/s, 4e9 packets are
    8 minutes.
    """
    return (counter.cast(pl.Int64).diff() % 2**32).fill_null(0).cum_sum()


def counters(tcp_info: pl.DataFrame) -> pl.DataFrame:
    """Payload bytes delivered so far, ``[flow, stream, t_ns, bytes]``, a row for each sample.

    From the receiver's ``bytes_received`` where the flow was sampled there, else from the sender's
    ``bytes_acked``; both are 64 bits wide in the kernel. ``tcp_info`` needs ``flow, side, stream, t_ns``
    and these two. Connections of fetches, which come and go, are no stream and are left out.
    """
    tcp_info = tcp_info.filter(pl.col("stream").is_not_null())
    if tcp_info.is_empty():
        return pl.DataFrame(schema=_COUNTERS)
    received = tcp_info.filter(pl.col("side") == "receiver").with_columns(bytes="bytes_received")
    acked = tcp_info.filter(pl.col("side") == "sender").with_columns(bytes="bytes_acked")
    acked = acked.join(received.select("flow").unique(), on="flow", how="anti")
    rows = pl.concat([received, acked], how="diagonal_relaxed").select(*_COUNTERS)
    return rows.cast(_COUNTERS).sort("flow", "stream", "t_ns")  # type: ignore[arg-type]


def sender_counter(tcp_info: pl.DataFrame, column: str) -> pl.DataFrame:
    """Growth of one of the sender's 32-bit counters, ``[flow, stream, t_ns, bytes]``, whatever its unit."""
    if column not in tcp_info.columns:
        return pl.DataFrame(schema=_COUNTERS)
    rows = tcp_info.filter(pl.col("side") == "sender")
    grown = unwrap_u32(pl.col(column)).over("flow", "stream", order_by="t_ns")
    return rows.with_columns(bytes=grown).select(*_COUNTERS).cast(_COUNTERS)  # type: ignore[arg-type]


def percentile(values: pl.Series, percent: float) -> float | None:
    """Linearly interpolated between the two nearest; None of nothing."""
    found = values.drop_nulls().quantile(percent / 100, interpolation="linear")
    return None if found is None else float(found)


def datagram_counters(udp: pl.DataFrame, header_bytes: int = 0) -> pl.DataFrame:
    """Bytes of datagrams received so far, with headers of this size each: ``[flow, stream, t_ns, bytes]``."""
    received = udp.filter(pl.col("side") == "receiver")
    total = pl.col("received_bytes") + header_bytes * pl.col("received_packets")
    rows = received.with_columns(bytes=total, stream=pl.lit("0")).select(*_COUNTERS)
    return rows.cast(_COUNTERS).sort("flow", "t_ns")  # type: ignore[arg-type]


def fetches(http_fetch: pl.DataFrame) -> pl.DataFrame:
    """A row for each fetch that has begun, in order of time, as both ends report of it.

    ``[flow, fetch, t_ns, connect_ns, first_byte_ns, completion_ns, cut_ns, received_bytes, error, done]`` are
    the client's; ``[segments, retransmits, timeouts]`` are what the server's kernel has counted for this
    fetch alone, null where the server has no row of it. ``timeouts`` are null before Linux 6.7.
    """
    key = ["flow", "fetch"]
    totals = {"segments": "data_segs_out", "retransmits": "total_retrans", "timeouts": "total_rto"}
    sent = http_fetch.filter(pl.col("side") == "sender").sort(key)
    counts = {  # those of a connection go on from one fetch to the next
        name: pl.col(total) - pl.col(total).shift(fill_value=0).over("flow", "cookie")
        for name, total in totals.items()
    }
    received = http_fetch.filter(pl.col("side") == "receiver").sort("t_ns", "flow")
    return received.select(
        *key,
        *("t_ns", "connect_ns", "first_byte_ns", "completion_ns", "cut_ns", "received_bytes", "error"),
        done=pl.col("completion_ns").is_not_null() & pl.col("error").is_null(),
    ).join(sent.select(*key, **counts), on=key, how="left", maintain_order="left")


def fetch_summary(fetched: pl.DataFrame) -> dict[str, float | None]:
    """Numbers of one flow's :func:`fetches`; times and counts are of those that were done."""
    done = fetched.filter("done")
    times = {f"completion_p{p}_ns": percentile(done["completion_ns"], p) for p in (50, 95, 99)}
    counts = {
        f"fetch_{name}": int(done[name].sum()) if done[name].count() else None
        for name in ("retransmits", "timeouts")
    }
    return {"fetches_begun": fetched.height, "fetches_done": done.height} | times | counts


def fetch_counters(http_fetch: pl.DataFrame) -> pl.DataFrame:
    """Bytes of all fetches that did not fail, ``[flow, stream, t_ns, bytes]``: spread evenly from the begin
    of each to its end, or to where it was cut.
    """
    took_ns = pl.coalesce("completion_ns", "cut_ns")
    received = fetches(http_fetch).filter(took_ns.is_not_null() & pl.col("error").is_null())
    after = pl.col("received_bytes").cum_sum().over("flow")
    begun = received.with_columns(bytes=after - pl.col("received_bytes"))
    ended = received.with_columns(bytes=after, t_ns=pl.col("t_ns") + took_ns)
    rows = pl.concat([begun, ended]).with_columns(stream=pl.lit("0")).select(*_COUNTERS)
    return rows.cast(_COUNTERS).sort("flow", "t_ns", "bytes")  # type: ignore[arg-type]


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


def jain_index(rates: Sequence[float]) -> float | None:
    """Jain's fairness index, (sum x)^2 / (n sum x^2): 1 for equal shares, 1/n for one alone. None if all
    are 0.

    R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984.
    """
    squares = sum(x * x for x in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None


def utilisation(rates_bps: Sequence[float], bottleneck_bps: float) -> float:
    """Sum of goodputs over the bottleneck's rate. Headers keep it below 1448/1514 = 0.956 with full
    packets.
    """
    return sum(rates_bps) / bottleneck_bps


def fairness(rates: pl.DataFrame, spans_ns: dict[str, tuple[int, int]]) -> pl.DataFrame:
    """Jain's index in each interval of :func:`goodput`'s table, ``[t_ns, flows, jain_index]``.

    Over the flows that run throughout the interval; intervals with fewer than two, or a missing one, are
    left out.
    """
    out = []
    for (t_ns, dt_ns), rows in rates.group_by("t_ns", "dt_ns", maintain_order=True):
        half = dt_ns // 2
        running = [f for f, (start, end) in spans_ns.items() if start <= t_ns - half and t_ns + half <= end]
        present = rows.filter(pl.col("flow").is_in(running))["goodput_bps"].to_list()
        if len(running) > 1 and len(present) == len(running):
            out.append({"t_ns": t_ns, "flows": len(running), "jain_index": jain_index(present)})
    schema = {"t_ns": pl.Int64, "flows": pl.Int64, "jain_index": pl.Float64}
    return pl.DataFrame(out, schema=schema).sort("t_ns")


def queue(qdisc: pl.DataFrame) -> pl.DataFrame:
    """Queue over time, ``[host, dev, kind, handle, t_ns, qlen_packets, backlog_bytes, dropped_packets]``.

    ``dropped_packets`` counts those since the sample before; the kernel's counter is 32 bits wide and may
    wrap.
    """
    key = ["host", "dev", "kind", "handle"]
    return (
        qdisc.sort(*key, "t_ns")
        .with_columns(total=unwrap_u32(pl.col("drops")).over(key))
        .with_columns(dropped_packets=pl.col("total").diff().fill_null(0).over(key))
        .select(*key, "t_ns", "qlen_packets", "backlog_bytes", "dropped_packets")
    )


def steps(start_ns: int, end_ns: int, width_ns: int) -> list[int]:
    """Edges from start to end, ``width_ns`` apart; a remainder at the end is left out."""
    return list(range(start_ns, end_ns + 1, width_ns))
