"""The effect of on/off cross traffic on the flows beside it, by period."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Literal

import polars as pl

from dumbbell.analysis.rates import COUNTERS, goodput

PERIODS = {"start_ns": pl.Int64, "end_ns": pl.Int64, "asked_bps": pl.Int64}
PERIOD = ["start_ns", "end_ns"]


def periods(rates: Iterable[Sequence[tuple[int, int]]], end_ns: int) -> pl.DataFrame:
    """Periods by the total requested rate of all UDP flows, ``[start_ns, end_ns, asked_bps]``.

    ``rates`` has for each flow the times from which on it is asked for which rate (bit/s), in order, the last
    of them 0 where it ends. From t0 to ``end_ns``, without gaps; neighbours differ in their rate.
    """
    flows = [list(steps) for steps in rates]
    times = sorted({0, *(at for steps in flows for at, _ in steps if 0 < at < end_ns)})
    found: list[tuple[int, int]] = []
    for at in times:
        asked = sum(next((rate for since, rate in reversed(steps) if since <= at), 0) for steps in flows)
        if not found or found[-1][1] != asked:
            found.append((at, asked))
    edges = [*(at for at, _ in found), end_ns]
    rows = [(*span, asked) for span, (_, asked) in zip(pairwise(edges), found, strict=True)]
    return pl.DataFrame(rows, schema=PERIODS, orient="row")


def beside(
    counted: pl.DataFrame, udp: pl.DataFrame, spans: pl.DataFrame, datagram_flows: Collection[str]
) -> pl.DataFrame:
    """Rates of UDP flows and of the flows beside them in each of :func:`periods`.

    ``[start_ns, end_ns, asked_bps, udp_bps, received_packets, lost_packets, tcp_bps]``.

    ``counted`` are counters of all flows, as :func:`goodput` takes them; those not of ``datagram_flows`` are
    TCP's. Rates are sums over flows, null where samples of none cover the period (:data:`MIN_COVER`). Packets
    are the receiver's, from rows of ``udp``. A datagram counts as lost when a later one arrives: what the end
    of a period lost is seen at the begin of the next.
    """
    own = pl.col("flow").is_in(datagram_flows)
    receiver = udp.filter(pl.col("side") == "receiver", own).with_columns(stream=pl.lit("0"))
    found = spans
    for name, rows in (("udp_bps", _bounded(counted.filter(own), spans)), ("tcp_bps", counted.filter(~own))):
        found = found.join(_by_period(rows, spans, name), on=PERIOD, how="left")
    seconds = (pl.col("end_ns") - pl.col("start_ns")) / 1e9
    for name in ("received_packets", "lost_packets"):
        rows = receiver.with_columns(bytes=name).select(*COUNTERS).cast(COUNTERS)  # type: ignore[arg-type]
        each = _by_period(_bounded(rows, spans), spans, name).with_columns(pl.col(name) / 8 * seconds)
        found = found.join(each, on=PERIOD, how="left")
    columns = [*PERIODS, "udp_bps", "received_packets", "lost_packets", "tcp_bps"]
    return found.select(columns).sort("start_ns")


def on_off(found: pl.DataFrame) -> dict[str, float | None]:
    """Means of :func:`beside` over all periods with cross traffic, and over all without.

    While it was on ``asked_bps, udp_bps, loss`` (share of datagrams) and ``tcp_on_bps``, while it was off
    ``tcp_off_bps``. Rates are means by time over the periods that have one; None of none.
    """
    on = pl.col("asked_bps") > 0

    def mean(column: str, which: pl.Expr) -> float | None:
        rows = found.filter(which).drop_nulls(column)
        lasted = (rows["end_ns"] - rows["start_ns"]).cast(pl.Float64)  # 64 bits do not hold bit/s times ns
        return float((rows[column] * lasted).sum()) / float(lasted.sum()) if rows.height else None

    lost, received = found.filter(on).select(pl.col("lost_packets", "received_packets").sum()).row(0)
    return {
        "asked_bps": mean("asked_bps", on),
        "udp_bps": mean("udp_bps", on),
        "loss": lost / (lost + received) if lost + received else None,
        "tcp_on_bps": mean("tcp_bps", on),
        "tcp_off_bps": mean("tcp_bps", ~on),
    }


def growth_by_period(grown: pl.DataFrame, spans: pl.DataFrame, by: Sequence[str], count: str) -> pl.DataFrame:
    """Growth of counters in each period, ``[*by, start_ns, end_ns, count]``.

    ``grown`` has rows ``[*by, t_ns, interval_ns, count]``: growth over the interval that ends at ``t_ns``, of
    which each period gets the share that it overlaps. Those of ``snmp`` are such, with ``delta`` as count.
    """
    begin = pl.col("t_ns") - pl.col("interval_ns")
    overlap = pl.min_horizontal("t_ns", "end_ns") - pl.max_horizontal(begin, "start_ns")
    return (
        grown.drop_nulls([count, "interval_ns"])
        .filter(pl.col("interval_ns") > 0)
        .join(spans.select(PERIOD), how="cross")
        .filter(overlap > 0)
        .group_by(*by, *PERIOD)
        .agg((pl.col(count) * (overlap / pl.col("interval_ns"))).sum())
        .sort(*by, "start_ns")
    )


def _bounded(counted: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Counters of datagrams, with their values when cross traffic began and stopped.

    A sample seldom falls on that moment; datagrams between two samples arrived while it was on.
    """
    on = spans.filter(pl.col("asked_bps") > 0)
    starts, ends = on.select(t_ns="start_ns"), on.select(t_ns="end_ns")

    def then(edges: pl.DataFrame, sample: Literal["backward", "forward"]) -> pl.DataFrame:
        at = counted.select("flow", "stream").unique().join(edges, how="cross").sort("t_ns")
        by = ["flow", "stream"]
        found = at.join_asof(counted.sort("t_ns"), on="t_ns", by=by, strategy=sample, check_sortedness=False)
        return found.select(*COUNTERS).drop_nulls("bytes")

    began = then(starts.join(ends, on="t_ns", how="anti"), "backward")
    ceased = then(ends.join(starts, on="t_ns", how="anti"), "forward")
    return pl.concat([counted.select(*COUNTERS), began, ceased])


def _by_period(counted: pl.DataFrame, spans: pl.DataFrame, name: str) -> pl.DataFrame:
    """Goodput of all flows of a table in each period, ``[start_ns, end_ns, name]``."""
    edges = [*spans["start_ns"], *spans["end_ns"].tail(1)]
    start, end = pl.col("start_ns"), pl.col("end_ns")
    at = spans.select(*PERIOD, t_ns=(start + end) // 2)
    rows = goodput(counted.sort("flow", "stream", "t_ns"), edges).join(at, on="t_ns")
    return rows.group_by(PERIOD).agg(pl.col("goodput_bps").sum().alias(name))
