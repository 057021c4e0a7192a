"""Fetches over HTTP, from the reports of both ends."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from dumbbell.analysis.rates import COUNTERS
from dumbbell.analysis.statistics import (
    Interval,
    beyond_two_sigma,
    confusion,
    percentile,
    percentile_interval,
    share_interval,
)


def fetches(http_fetch: pl.DataFrame) -> pl.DataFrame:
    """A row for each fetch that has begun, in order of time, from the reports of both ends.

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


def fetch_ends(http_fetch: pl.DataFrame) -> pl.DataFrame:
    """What the server's kernel told of each fetch, stamped when the client had all of it, or its end cut it.

    The rows of ``http_fetch`` with ``t_ns``, and ``begun_ns`` when the fetch began (ns since t0); ``stream``
    is the connection's cookie. Both ends' hosts are there: rows of clients are as they were.
    """
    is_server = pl.col("side") == "sender"
    client = http_fetch.filter(~is_server).select(
        *("flow", "fetch"), begun_ns="t_ns", took_ns=pl.coalesce("completion_ns", "cut_ns")
    )
    served = http_fetch.filter(is_server).join(client, on=["flow", "fetch"])
    ends = served.with_columns(
        t_ns=pl.col("begun_ns") + pl.col("took_ns"), stream=pl.col("cookie").cast(pl.String)
    )
    return pl.concat(
        [ends.drop("took_ns").filter(pl.col("t_ns").is_not_null()), http_fetch.filter(~is_server)],
        how="diagonal",
    )


def fetch_summary(fetched: pl.DataFrame) -> dict[str, float | None]:
    """Numbers of one flow's :func:`fetches`; times and counts are of completed ones."""
    done = fetched.filter("done")
    times = {f"completion_p{p}_ns": percentile(done["completion_ns"], p) for p in (50, 95, 99)}
    counts = {
        f"fetch_{name}": int(done[name].sum()) if done[name].count() else None
        for name in ("retransmits", "timeouts")
    }
    return {"fetches_begun": fetched.height, "fetches_done": done.height} | times | counts


def fetch_counters(http_fetch: pl.DataFrame) -> pl.DataFrame:
    """Bytes of all fetches that did not fail, ``[flow, stream, t_ns, bytes]``: spread evenly from the begin
    of each to its end, or to where it was cut. Fetches of a flow may overlap.
    """
    received = fetches(http_fetch).with_columns(took=pl.coalesce("completion_ns", "cut_ns"))
    received = received.filter(pl.col("took") > 0, pl.col("error").is_null())
    rate = pl.col("received_bytes") / pl.col("took")
    begins = received.select("flow", "t_ns", rate=rate)
    ends = received.select("flow", t_ns=pl.col("t_ns") + pl.col("took"), rate=-rate)
    changes = pl.concat([begins, ends]).sort("flow", "t_ns")
    before = pl.col("rate").cum_sum().clip(0).shift(fill_value=0.0)
    total = (before * pl.col("t_ns").diff().fill_null(0)).cum_sum().round().over("flow")
    rows = changes.select("flow", "t_ns", stream=pl.lit("0"), bytes=total)
    return rows.select(*COUNTERS).cast(COUNTERS)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Latency:
    """How long a set of fetches took (ns), and how loss is related to it."""

    fetches: int
    percentiles: dict[int, Interval | None]
    retransmitted: Interval | None  # share of fetches with a retransmitted segment
    clean: pl.Series  # completion_ns of fetches without
    lossy: pl.Series  # completion_ns of fetches with retransmitted segments
    guess: dict[str, int]  # two standard deviations against retransmits


def latency(fetched: pl.DataFrame, percents: tuple[int, ...] = (50, 95, 99)) -> Latency:
    """Latency of completed :func:`fetches`; their loss if the server has reported it.

    ``guess`` is how often :func:`beyond_two_sigma` of their times told which fetches had segments sent again.
    """
    done = fetched.filter("done")
    told = done.filter(pl.col("retransmits").is_not_null())
    lossy = told["retransmits"] > 0
    times = done["completion_ns"].to_list()
    return Latency(
        fetches=done.height,
        percentiles={percent: percentile_interval(times, percent) for percent in percents},
        retransmitted=share_interval(int(lossy.sum()), told.height),
        clean=told["completion_ns"].filter(~lossy),
        lossy=told["completion_ns"].filter(lossy),
        guess=confusion(beyond_two_sigma(told["completion_ns"]), lossy),
    )
