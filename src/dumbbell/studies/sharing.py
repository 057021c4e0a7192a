"""When the flows of a point began to share its bottleneck fairly."""

from __future__ import annotations

import polars as pl

from dumbbell import analysis
from dumbbell.plan.windows import ways
from dumbbell.studies.source import Missing, Source

BIN_NS = 10**9
FAIR = 0.9  # the least Jain's index that counts as fair
STAYS_NS = 5 * 10**9  # how long it must stay fair


def fair_after_s(source: Source) -> dict[str, float | None]:
    """When flows began to share fairly, by direction: s after the last began, None if never; or Missing."""
    rates = source.goodputs(BIN_NS)
    found = {}
    for way, flows in ways(source.planned_flows).items():
        spans = {flow.name: flow.life_ns for flow in flows}
        shares = analysis.fairness(rates, spans).filter(pl.col("flows") == len(flows))
        if shares.is_empty():
            continue
        last_start_s = max(start for start, _ in spans.values()) / 1e9
        at_ns = analysis.convergence_ns(shares, least=FAIR, for_ns=STAYS_NS)
        found[str(way)] = None if at_ns is None else at_ns / 1e9 - last_start_s
    if not found:
        raise Missing("At no time do all flows run at once.")
    return found
