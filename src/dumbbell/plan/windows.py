"""Default windows of metrics, and the flows that share one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dumbbell.plan.document import Flow
from dumbbell.plan.path import Way

Window = tuple[int, int]  # in ns since t0


def ways(flows: Iterable[Flow]) -> dict[Way, list[Flow]]:
    """Flows by the direction of their data: flows in different directions share no bottleneck."""
    found: dict[Way, list[Flow]] = {}
    for flow in flows:
        found.setdefault(flow.direction, []).append(flow)
    return found


def in_words(flows: Sequence[Flow], every: Sequence[Flow]) -> str:
    """Words for some of a phase's flows, to say what a value is of."""
    names, (direction, *_) = {flow.name for flow in flows}, ways(flows)
    if names == {flow.name for flow in every}:
        return "all flows"
    if names == {flow.name for flow in every if flow.direction == direction}:
        return f"all flows {direction}"
    return ", ".join(flow.name for flow in flows)


def default_window(lives: Sequence[Window], warm_up_ns: int | None) -> Window | None:
    """The time in which all of these run, after the warm-up; None if there is none."""
    start = max(warm_up_ns or 0, *(start for start, _ in lives))
    end = min(end for _, end in lives)
    return (start, end) if start < end else None
