"""The path of a plan: limits of queues in packets or bytes, resolved from rate and RTT."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from dumbbell import model, units
from dumbbell.model import KeyPath
from dumbbell.plan.part import Part, optional

PACKET_BYTES = 1514  # Ethernet header and 1500 bytes: what the bottleneck's queue counts
UDP_HEADER_BYTES = 14 + 20 + 8  # of them, around the payload of a datagram over IPv4


class Queue(Part):
    """A queue with its limit resolved, in packets or bytes as its kind counts."""

    kind: model.QueueKind
    limit_packets: int | None = optional()
    limit_bytes: int | None = optional()
    ecn: bool | None = optional()
    target_us: int | None = optional()
    interval_us: int | None = optional()


class GilbertElliott(Part):
    """Loss in bursts."""

    p: float
    r: float
    loss_bad: float
    loss_good: float

    @property
    def mean(self) -> float:
        """Share of packets that is lost in the long run; the chain begins in the good state."""
        bad = self.p / (self.p + self.r) if self.p else 0
        return bad * self.loss_bad + (1 - bad) * self.loss_good


class Direction(Part):
    """One direction of the path that the router is asked for."""

    rate_bps: int
    delay_us: int
    loss: float
    loss_gemodel: GilbertElliott | None = optional()
    jitter_us: int | None = optional()
    distribution: str | None = optional()
    keep_order: bool | None = optional()
    duplicate: float | None = optional()
    corrupt: float | None = optional()
    reorder: float | None = optional()
    queue: Queue

    @property
    def arriving(self) -> float:
        """Share of the packets past the queue that reaches a receiver intact."""
        burst_loss = self.loss_gemodel.mean if self.loss_gemodel else 0
        return (1 - self.loss) * (1 - burst_loss) * (1 - (self.corrupt or 0))


class PlannedPath(Part):
    """Both directions, the round-trip time that they add up to, and whether it varies."""

    rtt_ns: int
    jitters: bool
    forward: Direction
    reverse: Direction

    def way(self, direction: Literal["forward", "reverse"]) -> Direction:
        """What data in this direction meets."""
        return self.forward if direction == "forward" else self.reverse

    def rate_bps(self, direction: Literal["forward", "reverse"]) -> int:
        """Rate of the bottleneck that data in this direction meets."""
        return self.way(direction).rate_bps


def resolve_path(asked: model.NetworkPath, refuse: Callable[[KeyPath, str], None]) -> PlannedPath:
    """The path as the router is asked for it; what cannot be had is refused at its key."""
    reverse = asked.reverse or asked.forward
    rtt_ns = asked.forward.delay + reverse.delay

    def direction(name: Literal["forward", "reverse"], asked: model.Direction) -> Direction:
        return _direction(asked, rtt_ns, lambda at, reason: refuse(("path", name, *at), reason))

    there = direction("forward", asked.forward)
    back = there if asked.reverse is None else direction("reverse", reverse)
    jitters = bool(there.jitter_us or back.jitter_us)
    return PlannedPath(rtt_ns=rtt_ns, jitters=jitters, forward=there, reverse=back)


def _direction(asked: model.Direction, rtt_ns: int, refuse: Callable[[KeyPath, str], None]) -> Direction:
    queue = asked.queue
    bursts = asked.loss_gemodel
    return Direction(
        rate_bps=asked.rate,
        delay_us=asked.delay // 1000,
        loss=asked.loss,
        loss_gemodel=GilbertElliott(**bursts.model_dump()) if bursts else None,
        jitter_us=_us(asked.jitter),
        distribution=asked.distribution,
        keep_order=asked.keep_order or None,
        duplicate=asked.duplicate or None,
        corrupt=asked.corrupt or None,
        reorder=asked.reorder or None,
        queue=Queue(
            kind=queue.kind,
            ecn=queue.ecn,
            target_us=_us(queue.target),
            interval_us=_us(queue.interval),
            **({} if queue.limit is None else _limit(queue, queue.limit, asked.rate, rtt_ns, refuse)),
        ),
    )


def _us(ns: int | None) -> int | None:
    return ns // 1000 if ns else None


def _limit(
    queue: model.Queue,
    limit: units.Limit,
    rate_bps: int,
    rtt_ns: int,
    refuse: Callable[[KeyPath, str], None],
) -> dict[str, int]:
    unit = model.LIMIT_UNIT[queue.kind]
    amount = limit.amount
    if limit.unit == "bdp":
        bdp_bytes = amount * rate_bps * rtt_ns / (8 * 10**9)
        amount = bdp_bytes / PACKET_BYTES if unit == "packets" else bdp_bytes
    resolved = math.ceil(amount)
    if resolved < (1 if unit == "packets" else PACKET_BYTES):
        refuse(
            ("queue", "limit"),
            f"{units.render_limit(limit)} is {resolved} {unit}, less than one packet of {PACKET_BYTES} bytes",
        )
    return {f"limit_{unit}": resolved}
