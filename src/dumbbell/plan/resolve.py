"""From the path of a scenario to that of a plan; what is impossible is refused at its key."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from dumbbell import units
from dumbbell.kinds.asked.base import BaseFlow
from dumbbell.plan.path import (
    BURST_S,
    MOST_DELAYS,
    MOST_PACKET_BYTES,
    PACKET_BYTES,
    Change,
    Conditions,
    Direction,
    GilbertElliott,
    Outage,
    OwnDelay,
    PlannedPath,
    Policer,
    Queue,
    Slot,
    Way,
)
from dumbbell.scenario import LIMIT_UNIT, KeyPath, NetworkPath
from dumbbell.scenario import Direction as AskedDirection
from dumbbell.scenario import Queue as AskedQueue


def resolve_path(
    asked: NetworkPath,
    refuse: Callable[[KeyPath, str], None],
    flows: Mapping[Way, Sequence[OwnDelay]] | None = None,
    packet_bytes: int = PACKET_BYTES,
) -> PlannedPath:
    """The path that the router is asked for; impossible values are refused at their keys.

    ``packet_bytes`` is the largest frame of its hosts, the unit of queues of ``1bdp`` that count packets.
    """

    def rtt_ns(at_ns: int) -> int:
        return asked.way("forward").at(at_ns).delay + asked.way("reverse").at(at_ns).delay

    def direction(name: Way) -> Direction:
        way, said = asked.way(name), "forward" if asked.reverse is None else name
        first, *later = _conditions(
            way, rtt_ns, packet_bytes, lambda at, reason: refuse(("path", said, *at), reason)
        )
        changes = [
            Change(at_ns=change.at, **dict(state)) for change, state in zip(way.changes, later, strict=True)
        ]
        own = list((flows or {}).get(name, []))
        return Direction(**dict(first), flows=own or None, changes=changes or None)

    there, back = direction("forward"), direction("reverse")
    jitters = any(way.jitter_us or way.reorder for way in (there, back))
    return PlannedPath(
        rtt_ns=rtt_ns(0),
        slot_wait_ns=1000 * (there.slot_wait_us + back.slot_wait_us) or None,
        jitters=jitters,
        packet_bytes=packet_bytes,
        forward=there,
        reverse=back,
    )


def own_delay_problem(
    asked: BaseFlow, path: NetworkPath | None, direction: Way, others_ns: Collection[int]
) -> str | None:
    """Why a flow cannot have its own delay beside those of other flows in this direction; None if it can."""
    if path is None:
        return "the scenario has no path for the router to make longer"
    if asked.why_no_delay:
        return asked.why_no_delay
    if any(state.duplicate for _, state in path.way(direction).states):
        return f"kernels allow none on a path that duplicates packets, as {direction} does"
    if path.way(direction).slot:
        return f"packets of all flows leave in the same slots, as {direction} has them"
    if len({asked.delay, *others_ns}) > MOST_DELAYS:
        return f"flows have more than {MOST_DELAYS} different delays {direction}"
    return None


def _conditions(
    asked: AskedDirection,
    rtt_ns: Callable[[int], int],
    packet_bytes: int,
    refuse: Callable[[KeyPath, str], None],
) -> list[Conditions]:
    """A direction at first and after each change. A queue keeps its limit unless a change names it."""
    found: list[Conditions] = []
    for i, (at_ns, state) in enumerate(asked.states):
        if i == 0 or asked.changes[i - 1].queue is not None:
            key: KeyPath = ("changes", i - 1, "queue") if i else ("queue",)
            queue = _queue(state, rtt_ns(at_ns), packet_bytes, partial(refuse, (*key, "limit")))
        if state.policer and (i == 0 or asked.changes[i - 1].policer):
            where: KeyPath = ("changes", i - 1, "policer") if i else ("policer",)
            least = packet_bytes + 1 + math.ceil(BURST_S * state.policer.rate / 8)
            if state.policer.burst < least:
                packet = f"a packet of {packet_bytes} bytes, which would never pass"
                reason = (
                    f"{state.policer.burst} bytes, in whole microseconds of the rate, may not hold {packet}"
                )
                refuse((*where, "burst"), f"{reason}: give {least}B or more")
        bursts = state.loss_gemodel
        found.append(
            Conditions(
                rate_bps=state.rate,
                outage=_outage(asked, at_ns) if not state.rate else None,
                burst_bytes=state.burst,
                policer=Policer(rate_bps=state.policer.rate, burst_bytes=state.policer.burst)
                if state.policer
                else None,
                delay_us=state.delay // 1000,
                loss=state.loss,
                loss_gemodel=GilbertElliott(**bursts.model_dump()) if bursts else None,
                jitter_us=_us(state.jitter),
                distribution=state.distribution,
                keep_order=state.keep_order,
                duplicate=state.duplicate,
                corrupt=state.corrupt,
                reorder=state.reorder,
                slot=Slot(min_us=state.slot // 1000, max_us=state.slot // 1000) if state.slot else None,
                queue=queue,
            )
        )
    return found


def _outage(asked: AskedDirection, at_ns: int) -> Outage | None:
    """The outage at this time; None if its end is not known, which the scenario's own check refuses.

    As many bytes of a packet as htb counts, at a rate of whole bytes per second, take as long as it lasts.
    """
    begin_ns, end_ns = next(of for of in reversed(asked.outages) if of[0] <= at_ns)
    if end_ns is None:
        return None
    bytes_per_s = max(1, MOST_PACKET_BYTES * 10**9 // (end_ns - begin_ns))
    packet_bytes = min(MOST_PACKET_BYTES, round(bytes_per_s * (end_ns - begin_ns) / 1e9))
    return Outage(rate_bps=8 * bytes_per_s, packet_bytes=packet_bytes)


def _queue(asked: AskedDirection, rtt_ns: int, packet_bytes: int, refuse: Callable[[str], None]) -> Queue:
    queue = asked.queue
    limit = {} if queue.limit is None else _limit(queue, asked.rate, rtt_ns, packet_bytes, refuse)
    return Queue(
        kind=queue.kind,
        ecn=queue.ecn,
        target_us=_us(queue.target),
        interval_us=_us(queue.interval),
        **limit,
    )


def _us(ns: int | None) -> int | None:
    return None if ns is None else ns // 1000


def _limit(
    queue: AskedQueue,
    rate_bps: int,
    rtt_ns: int,
    packet_bytes: int,
    refuse: Callable[[str], None],
) -> dict[str, int]:
    limit, unit = queue.limit, LIMIT_UNIT[queue.kind]
    assert limit is not None
    amount = limit.amount
    if limit.unit == "bdp":
        bdp_bytes = amount * rate_bps * rtt_ns / (8 * 10**9)
        amount = bdp_bytes / packet_bytes if unit == "packets" else bdp_bytes
    resolved = math.ceil(amount)
    if resolved < (1 if unit == "packets" else packet_bytes):
        refuse(
            f"{units.render_limit(limit)} is {resolved} {unit}, less than one packet of {packet_bytes} bytes"
        )
    return {f"limit_{unit}": resolved}
