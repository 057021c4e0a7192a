"""Nothing left a bottleneck in an outage, and after it packets did."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, faultless
from dumbbell.plan import PlannedPath, Way, change_name
from dumbbell.run.content import IN_MEASUREMENT, dig
from dumbbell.units import human

UNDER_WAY = 1  # the packet that is being sent when the outage begins


def checks(of: Asked, host: str, name: Way, path: PlannedPath) -> Iterator[Check]:
    """Each outage of a direction, from the counters of the bottleneck's queue."""
    way, late_ns = path.way(name), of.point.validity.start_error_ns
    device = dig(of.run.states[host], "path", "devices", name, "bottleneck")
    rows = of.tables["qdisc"].filter(IN_MEASUREMENT, kind=way.queue.kind, host=host, dev=device or "")
    numbers = {change.at_ns: i for i, change in enumerate(way.changes or [], start=1)}
    for begin_ns, lasts_ns in way.outages:
        named = {"host": host, "phase": "measurement", "name": change_name(name, numbers[begin_ns])}
        made = of.run.event("path_changed", **named) or {}
        begun_ns = begin_ns + made["error_ns"] + made["took_ns"] if made.get("ok") else None
        faults = faults_of(rows.sort("t_ns"), begun_ns, begin_ns + lasts_ns, late_ns)
        yield faultless("outage", f"{host} {name} from {human(begin_ns, 'ns')}", faults)


def faults_of(rows: pl.DataFrame, begun_ns: int | None, end_ns: int, late_ns: int) -> Iterator[str]:
    """What contradicts an outage between these times (ns since t0), which may end so much later.

    ``rows`` are samples of the queue, in order of time: ``t_ns``, ``packets`` that have left it, and
    ``qlen_packets`` that wait.
    """
    if begun_ns is None:
        yield "when its bottleneck was closed is not known: the agent says nothing of it"
        return
    during = rows.filter(pl.col("t_ns").is_between(begun_ns, end_ns, closed="left"))
    if during.height <= 1:
        yield "what left its bottleneck is not known: it was not sampled twice within the outage"
        return
    left = int(during["packets"][-1] - during["packets"][0])
    if left > UNDER_WAY:
        yield f"{human(left)} packets left its bottleneck, and no more than the one under way may"
    waited = during["qlen_packets"][-1]
    after = rows.filter(pl.col("t_ns") >= end_ns + late_ns)
    if waited and not after.is_empty() and after["packets"][0] == during["packets"][-1]:
        still, asked = human(end_ns + late_ns, "ns"), human(end_ns, "ns")
        yield f"its bottleneck still sent nothing at {still}, while packets waited: asked {asked}"
