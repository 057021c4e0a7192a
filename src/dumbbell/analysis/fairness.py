"""How flows share a bottleneck."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import polars as pl


def jain_index(rates: Sequence[float]) -> float | None:
    """Jain's fairness index, (sum x)^2 / (n sum x^2): 1 for equal shares, 1/n for one alone. None if all
    are 0.

    R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984.
    """
    squares = sum(x * x for x in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None


def fairness(rates: pl.DataFrame, spans_ns: dict[str, tuple[int, int]]) -> pl.DataFrame:
    """Jain's index in each interval of :func:`goodput`'s table, ``[t_ns, flows, jain_index]``.

    Over the flows that run throughout the interval; intervals with fewer than two, or a missing one, are
    left out.
    """
    goodputs: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    for flow, t_ns, dt_ns, goodput_bps in rates.select("flow", "t_ns", "dt_ns", "goodput_bps").iter_rows():
        goodputs[t_ns, dt_ns][flow] = goodput_bps
    out = []
    for (t_ns, dt_ns), by_flow in goodputs.items():
        half = dt_ns // 2
        running = [f for f, (start, end) in spans_ns.items() if start <= t_ns - half and t_ns + half <= end]
        present = [by_flow[flow] for flow in running if flow in by_flow]
        if len(running) > 1 and len(present) == len(running):
            out.append({"t_ns": t_ns, "flows": len(running), "jain_index": jain_index(present)})
    schema = {"t_ns": pl.Int64, "flows": pl.Int64, "jain_index": pl.Float64}
    return pl.DataFrame(out, schema=schema).sort("t_ns")


def convergence_ns(shares: pl.DataFrame, *, least: float = 0.9, for_ns: int) -> int | None:
    """The time from which flows shared fairly, by :func:`fairness`.

    The t_ns of the first of those intervals with a Jain's index of at least ``least`` that lasted for
    ``for_ns``; None if there are none.
    """
    since = None
    for row in shares.sort("t_ns").iter_rows(named=True):
        if row["jain_index"] is None or row["jain_index"] < least:
            since = None
        else:
            since = row["t_ns"] if since is None else since
            if row["t_ns"] - since >= for_ns:
                return int(since)
    return None
