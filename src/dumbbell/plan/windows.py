"""Of which flows a metric is known, and over which time it is measured unless a scenario says otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dumbbell.plan.document import Flow
from dumbbell.plan.path import Way
from dumbbell.scenario import Metric

Window = tuple[int, int]  # in ns since t0

# One value for several flows, which share the bottleneck of one direction.
SHARED: tuple[Metric, ...] = ("utilisation", "jain_index")
# Of each flow, from samples that are there only while it runs.
SAMPLED: tuple[Metric, ...] = ("retransmits", "time_in_recovery", "rtt", "completion_time")

_TCP = ("iperf3_tcp", "http", "ndt7_download", "ndt7_upload", "atou")
_UDP = ("iperf3_udp", "udp")


def known(metric: Metric, flows: Iterable[Flow], pings: Iterable[str]) -> set[str]:
    """Names of the flows and pings of which a metric is known."""
    kinds = _TCP if metric in SAMPLED else (*_TCP, *_UDP)
    names = {flow.name for flow in flows if flow.kind in kinds}
    if metric == "completion_time":
        return names & {flow.name for flow in flows if flow.fetch_bytes}
    return names | set(pings) if metric == "rtt" else names


def ways(flows: Iterable[Flow]) -> dict[Way, list[Flow]]:
    """Flows by the direction of their data: those of both have no bottleneck in common."""
    found: dict[Way, list[Flow]] = {}
    for flow in flows:
        found.setdefault(flow.direction, []).append(flow)
    return found


def in_words(flows: Sequence[Flow], every: Sequence[Flow]) -> str:
    """Some of every flow of a phase, as what a value of theirs is of."""
    names, (direction, *_) = {flow.name for flow in flows}, ways(flows)
    if names == {flow.name for flow in every}:
        return "all flows"
    if names == {flow.name for flow in every if flow.direction == direction}:
        return f"all flows {direction}"
    return ", ".join(flow.name for flow in flows)


def default_window(lives: Sequence[Window], warm_up_ns: int | None) -> Window | None:
    """While all of these run, after the warm-up; None if that is at no time."""
    start = max(warm_up_ns or 0, *(start for start, _ in lives))
    end = min(end for _, end in lives)
    return (start, end) if start < end else None
