"""The path of a plan: limits of queues in packets or bytes, resolved from rate and RTT."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from dumbbell import model, units
from dumbbell.model import KeyPath
from dumbbell.plan.part import Part

PACKET_BYTES = 1514  # Ethernet header and 1500 bytes: what the bottleneck's queue counts
UDP_HEADER_BYTES = 14 + 20 + 8  # of them, around the payload of a datagram over IPv4


class Queue(Part):
    """A queue with its limit resolved: packets for pfifo, bytes for bfifo."""

    kind: Literal["pfifo", "bfifo"]
    limit_packets: int | None = Field(default=None, exclude_if=lambda v: v is None)
    limit_bytes: int | None = Field(default=None, exclude_if=lambda v: v is None)


class Direction(Part):
    """One direction of the path that the router is asked for."""

    rate_bps: int
    delay_us: int
    loss: float
    queue: Queue


class PlannedPath(Part):
    """Both directions and the round-trip time that they add up to."""

    rtt_ns: int
    forward: Direction
    reverse: Direction

    def rate_bps(self, direction: Literal["forward", "reverse"]) -> int:
        """Rate of the bottleneck that data in this direction meets."""
        return (self.forward if direction == "forward" else self.reverse).rate_bps


def resolve_path(asked: model.NetworkPath, refuse: Callable[[KeyPath, str], None]) -> PlannedPath:
    """The path as the router is asked for it; what cannot be had is refused at its key."""
    reverse = asked.reverse or asked.forward
    rtt_ns = asked.forward.delay + reverse.delay

    def direction(name: Literal["forward", "reverse"], asked: model.Direction) -> Direction:
        return _direction(asked, rtt_ns, lambda at, reason: refuse(("path", name, *at), reason))

    forward = direction("forward", asked.forward)
    same = asked.reverse is None
    return PlannedPath(
        rtt_ns=rtt_ns, forward=forward, reverse=forward if same else direction("reverse", reverse)
    )


def _direction(asked: model.Direction, rtt_ns: int, refuse: Callable[[KeyPath, str], None]) -> Direction:
    limit, per_packet = asked.queue.limit, asked.queue.kind == "pfifo"
    amount = limit.amount
    if limit.unit == "bdp":
        bdp_bytes = amount * asked.rate * rtt_ns / (8 * 10**9)
        amount = bdp_bytes / PACKET_BYTES if per_packet else bdp_bytes
    resolved = math.ceil(amount)
    if resolved < (1 if per_packet else PACKET_BYTES):
        text, unit = units.render_limit(limit), "packets" if per_packet else "bytes"
        refuse(
            ("queue", "limit"),
            f"{text} is {resolved} {unit}, less than one packet of {PACKET_BYTES} bytes",
        )
    queue = (
        Queue(kind="pfifo", limit_packets=resolved)
        if per_packet
        else Queue(kind="bfifo", limit_bytes=resolved)
    )
    return Direction(rate_bps=asked.rate, delay_us=asked.delay // 1000, loss=asked.loss, queue=queue)
