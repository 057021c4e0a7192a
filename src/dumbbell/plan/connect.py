"""When the connection of a flow is made: over the path of the flow's start, and in time for it.

An agent makes a connection ahead of the flow's start, and holds it until then. TCP keeps what it has seen of
the path, such as the least RTT: a connection that was made before a change of the delay would send into one
path with the figures of another.
"""

from __future__ import annotations

from dumbbell import units
from dumbbell.kinds.asked.base import BaseFlow
from dumbbell.plan.path import LONGEST_JITTER
from dumbbell.scenario import Direction, NetworkPath

LEAD_NS = 4_000_000_000  # an agent connects so long before the start, if nothing keeps it from that
READY_NS = 100_000_000  # that hosts need beside the round trips of a connection


def connect_ns(asked: BaseFlow, path: NetworkPath | None, start_ns: int, late_ns: int) -> int | None:
    """When a flow connects at the earliest, since t0; None is as early as its agent likes.

    A change may be late by ``late_ns``. ValueError says that it would not connect in time for its start.
    """
    if path is None or asked.round_trips is None:
        return None
    needs_ns = READY_NS + asked.round_trips * _rtt_ns(asked, path, start_ns)
    if asked.greeting_ns is not None:
        ahead_ns = asked.greeting_ns + needs_ns
        return start_ns - ahead_ns if ahead_ns < LEAD_NS else None
    settled_ns = _settled_ns(path, start_ns)
    if settled_ns == 0:
        return None
    earliest_ns = settled_ns + late_ns
    if start_ns < earliest_ns + needs_ns:
        changes, needs, first = map(
            units.render_duration, (settled_ns, late_ns + needs_ns, earliest_ns + needs_ns)
        )
        raise ValueError(
            f"its connection has to meet the path of its start, whose delay changes at {changes}, and needs "
            f"{needs} after that: start it at {first} or later"
        )
    return earliest_ns if earliest_ns > start_ns - LEAD_NS else None


def _rtt_ns(asked: BaseFlow, path: NetworkPath, at_ns: int) -> int:
    """The longest RTT of a path without queues."""
    ways = [way.at(at_ns) for way in _ways(path)]
    return asked.delay + sum(way.delay + LONGEST_JITTER * (way.jitter or 0) for way in ways)


def _settled_ns(path: NetworkPath, at_ns: int) -> int:
    """Since when delays have been what they are at a time: since they changed, or 0."""

    def delays(ns: int) -> list[tuple[int, int, float]]:
        return [(way.delay, way.jitter or 0, way.reorder or 0) for way in (w.at(ns) for w in _ways(path))]

    settled_ns = at_ns
    for since_ns in sorted({at for way in _ways(path) for at, _ in way.states if at <= at_ns}, reverse=True):
        if delays(since_ns) != delays(at_ns):
            break
        settled_ns = since_ns
    return settled_ns


def _ways(path: NetworkPath) -> tuple[Direction, Direction]:
    return path.way("forward"), path.way("reverse")
