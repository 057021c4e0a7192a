"""When a flow connects: over the path that its start has, and early enough for its start.

An agent connects ahead of the flow's start, and holds the connection until then. TCP remembers what it has
measured of the path, such as the least RTT: a connection made before a change of the delay would use values
of the old path.
"""

from __future__ import annotations

from dumbbell import units
from dumbbell.kinds.asked.base import BaseFlow
from dumbbell.plan.path import LONGEST_JITTER
from dumbbell.scenario import Direction, NetworkPath

LEAD_NS = 4_000_000_000  # agents connect this long before the start, unless something prevents it
READY_NS = 100_000_000  # time that hosts need besides the round trips of a connection


def connect_ns(asked: BaseFlow, path: NetworkPath | None, start_ns: int, late_ns: int) -> int | None:
    """The earliest time at which a flow connects (ns since t0); None if its agent may choose.

    A change may be late by ``late_ns``. ValueError if the flow could not connect in time for its start.
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
    """The longest RTT of the path, without queues."""
    ways = [way.at(at_ns) for way in _ways(path)]
    return asked.delay + sum(way.delay + LONGEST_JITTER * (way.jitter or 0) + (way.slot or 0) for way in ways)


def _settled_ns(path: NetworkPath, at_ns: int) -> int:
    """Since when the delays have had their value at a time: the last change of one, or 0."""

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
