"""The path of a plan at any time, with queue limits in packets or bytes that follow from rate and RTT."""

from __future__ import annotations

import math
from ipaddress import ip_address
from itertools import pairwise
from typing import Literal

from pydantic import Field

from dumbbell import units
from dumbbell.plan.part import Part, optional
from dumbbell.scenario import QueueKind

ETHERNET_BYTES = 14  # the header of a frame, which the bottleneck's queue counts too
PACKET_BYTES = ETHERNET_BYTES + units.MTU_BYTES
IP_HEADER_BYTES = {4: 20, 6: 40}
UDP_HEADER_BYTES = 8
BURST_S = 1.1e-6  # tc cuts the time of a burst to whole microseconds, and the kernel to ticks of 64 ns
POLICER_S = 0.1  # of its rate, that the burst of a policer should hold for TCP
DRAIN_ROUND_TRIPS = 10  # that flows take to end; the handshake of iperf3's ends takes five
# At least, for what is lost several times; at most, because hosts kill what takes 10 s.
DRAIN_NS = (3 * 10**9, 9 * 10**9)
MOST_PACKET_BYTES = 2**16 - 1  # that htb counts for each packet, at least, if it is asked to
# How long before the end of an outage the router gives the bottleneck its rate again: until then it sends
# nothing yet, so that the end does not depend on when a process runs.
REOPENED_NS = 20_000_000
LONGEST_JITTER = 4  # as a multiple of the jitter: a distribution's table holds no more
MOST_DELAYS = 15  # of flows in a direction: tc's prio has 16 bands, and one is for all others

Way = Literal["forward", "reverse"]


def datagram_headers_bytes(address: str) -> int:
    """Headers of the frame of a datagram between addresses of this family: Ethernet, IP, UDP."""
    return ETHERNET_BYTES + IP_HEADER_BYTES[ip_address(address).version] + UDP_HEADER_BYTES


class Queue(Part):
    """A queue with its limit in packets or bytes, as its kind counts."""

    kind: QueueKind
    limit_packets: int | None = optional()
    limit_bytes: int | None = optional()
    ecn: bool | None = optional()
    target_us: int | None = optional()
    interval_us: int | None = optional()


class Policer(Part):
    """A token bucket behind the bottleneck."""

    rate_bps: int
    burst_bytes: int


class GilbertElliott(Part):
    """Loss in bursts, by the Gilbert-Elliott model."""

    p: float
    r: float
    loss_bad: float
    loss_good: float

    @property
    def mean(self) -> float:
        """The long-run loss; the Markov chain begins in the good state."""
        bad = self.p / (self.p + self.r) if self.p else 0
        return bad * self.loss_bad + (1 - bad) * self.loss_good


class Outage(Part):
    """How a bottleneck is closed.

    A packet leaves, and the next one not before so many bytes passed at this rate.
    """

    rate_bps: int
    packet_bytes: int


class Slot(Part):
    """The shortest and the longest time between packets that leave together."""

    min_us: int
    max_us: int


class Conditions(Part):
    """The conditions in one direction of the path at a time."""

    rate_bps: int  # 0 in an outage
    outage: Outage | None = optional()
    burst_bytes: int | None = optional()
    policer: Policer | None = optional()
    delay_us: int
    loss: float
    loss_gemodel: GilbertElliott | None = optional()
    jitter_us: int | None = optional()
    distribution: str | None = optional()
    keep_order: bool | None = optional()
    duplicate: float | None = optional()
    corrupt: float | None = optional()
    reorder: float | None = optional()
    slot: Slot | None = optional()
    queue: Queue

    @property
    def slot_wait_us(self) -> int:
        """How much longer than its delay a packet takes that finds the delay line empty.

        Netem begins a slot when the packet arrives, and another when its delay is over, unless the first has
        not ended by then.
        """
        if self.slot is None:
            return 0
        return self.slot.min_us - (self.delay_us if self.slot.min_us >= self.delay_us else 0)

    @property
    def capacity_bps(self) -> int:
        """What passes in the long run: the rate of the bottleneck, or of the policer if that is lower."""
        return min(self.rate_bps, self.policer.rate_bps) if self.policer else self.rate_bps

    def passing_bps(self, time_ns: int) -> float:
        """The mean of what passes at the most in a time that begins with full buckets."""
        passing = self.rate_bps + 8e9 * (self.burst_bytes or 0) / time_ns
        if self.policer is None:
            return passing
        return min(passing, self.policer.rate_bps + 8e9 * self.policer.burst_bytes / time_ns)

    @property
    def loses(self) -> bool:
        """Whether packets are or may be lost behind the queue."""
        return bool(self.loss or self.loss_gemodel)

    @property
    def least_us(self) -> int:
        """The least delay with jitter; a packet that is sent out of turn has none."""
        spread = (self.jitter_us or 0) * (LONGEST_JITTER if self.distribution else 1)
        return 0 if self.reorder else max(0, self.delay_us - spread)

    def fullest_ns(self, packet_bytes: int) -> int:
        """How long a packet waits in a full queue of packets of this size.

        0 if the kernel chooses the queue's limit, or nothing passes.
        """
        if not self.rate_bps:
            return 0
        limit = self.queue.limit_bytes or packet_bytes * (self.queue.limit_packets or 0)
        return limit * 8 * 10**9 // self.rate_bps

    @property
    def arriving(self) -> float:
        """Share of the packets behind the queue that arrive intact."""
        burst_loss = self.loss_gemodel.mean if self.loss_gemodel else 0
        return (1 - self.loss) * (1 - burst_loss) * (1 - (self.corrupt or 0))

    @property
    def per_packet(self) -> list[str]:
        """The settings that act on single packets, or count them: merged packets change their effect."""
        done = ("loss", "loss_gemodel", "duplicate", "corrupt", "reorder")
        counted = ["queue.limit_packets"] if self.queue.limit_packets else []
        return [name for name in done if getattr(self, name)] + counted


class Change(Conditions):
    """The conditions of a direction from a time on, in ns since t0."""

    at_ns: int


class OwnDelay(Part):
    """An additional one-way delay for packets from or to a port."""

    delay_us: int
    protocol: Literal["tcp", "udp"]
    src: str
    dst: str
    src_port: int | None = optional()
    dst_port: int | None = optional()


class Direction(Conditions):
    """One direction of the path as requested: at first, and after each change."""

    flows: list[OwnDelay] | None = optional()
    changes: list[Change] | None = optional()

    @property
    def states(self) -> list[tuple[int, Conditions]]:
        """The conditions of each time, with the ns since t0 from which they apply."""
        return [(0, self), *((change.at_ns, change) for change in self.changes or [])]

    @property
    def outages(self) -> list[tuple[int, int]]:
        """Begin (ns since t0) and length (ns) of each outage."""
        found: list[tuple[int, int]] = []
        begin_ns = None
        for at_ns, state in self.states:
            if state.outage:
                begin_ns = at_ns if begin_ns is None else begin_ns
            elif begin_ns is not None:
                found.append((begin_ns, at_ns - begin_ns))
                begin_ns = None
        return found

    @property
    def made_ns(self) -> list[int]:
        """When the router makes each change (ns since t0): one that ends an outage a little ahead."""
        before = [self, *(self.changes or [])]
        return [
            change.at_ns - (REOPENED_NS if was.outage and not change.outage else 0)
            for was, change in zip(before, self.changes or [], strict=False)
        ]

    def at(self, ns: int) -> Conditions:
        """The conditions at a time since t0."""
        return [state for at, state in self.states if at <= ns][-1]

    def mean_rate_bps(self, start_ns: int, end_ns: int) -> float:
        """The mean of what passes in the long run over a time."""
        times = [*(at for at, _ in self.states), max(end_ns, self.states[-1][0])]
        bits = sum(
            state.capacity_bps * max(0, min(until, end_ns) - max(since, start_ns))
            for (since, until), (_, state) in zip(pairwise(times), self.states, strict=True)
        )
        return bits / (end_ns - start_ns)


class PlannedPath(Part):
    """Both directions, the initial round-trip time, and whether it varies.

    ``slot_wait_ns`` is how much longer slots make it on an idle path, ``packet_bytes`` the largest frame that
    all hosts on the path may send.
    """

    rtt_ns: int
    slot_wait_ns: int | None = optional()
    jitters: bool
    packet_bytes: int = Field(default=PACKET_BYTES, exclude_if=lambda bytes_: bytes_ == PACKET_BYTES)
    forward: Direction
    reverse: Direction

    @property
    def ways(self) -> list[tuple[Way, Direction]]:
        """Both directions with their names."""
        return [("forward", self.forward), ("reverse", self.reverse)]

    @property
    def jitter_us(self) -> float:
        """The initial jitter of a round trip."""
        return math.hypot(*(way.jitter_us or 0 for _, way in self.ways))

    @property
    def idle_rtt_ns(self) -> int:
        """The initial round-trip time of packets that are alone on the path."""
        return self.rtt_ns + (self.slot_wait_ns or 0)

    def way(self, direction: Way) -> Direction:
        """The direction that data this way takes."""
        return self.forward if direction == "forward" else self.reverse

    def rate_bps(self, direction: Way) -> int:
        """The initial rate of the bottleneck in a direction."""
        return self.way(direction).rate_bps

    def least_rtt_ns(self, start_ns: int, end_ns: int) -> int:
        """The least RTT of the path at any time from start to end."""
        times = [start_ns, *(at for at, _, _ in self.states if start_ns < at <= end_ns)]
        return 1000 * min(sum(way.at(ns).least_us for _, way in self.ways) for ns in times)

    def drained_ns(self, end_ns: int, own_delay_us: int) -> int:
        """When the last packets of flows that end at ``end_ns`` have passed, with this delay of their own."""
        ways = [way.at(end_ns) for _, way in self.ways]
        full_ns = sum(
            1000 * (way.delay_us + way.slot_wait_us) + way.fullest_ns(self.packet_bytes) for way in ways
        )
        round_trip_ns = 1000 * own_delay_us + full_ns
        least, most = DRAIN_NS
        return end_ns + min(most, max(least, DRAIN_ROUND_TRIPS * round_trip_ns))

    @property
    def states(self) -> list[tuple[int, Conditions, Conditions]]:
        """The conditions of both directions at each time, with the ns since t0 from which they apply."""
        times = sorted({at for _, way in self.ways for at, _ in way.states})
        return [(at, self.forward.at(at), self.reverse.at(at)) for at in times]


def change_name(direction: Way, number: int) -> str:
    """The name by which agents report the n-th change of a direction."""
    return f"{direction}-{number}"
