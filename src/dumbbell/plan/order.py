"""The mean delay of packets with jitter where their order is kept."""

from __future__ import annotations

import math

from dumbbell.plan.path import LONGEST_JITTER, Conditions

STEP = 0.02  # of the sum and the integral below, in multiples of the jitter


def ordered_delay_us(way: Conditions, packet_bytes: int) -> int | None:
    """Mean delay of packets of this size at the bottleneck's rate; None if nothing keeps their order.

    No packet leaves before the one in front of it, so each has the longest of the delays of all packets
    before it, less the time that has passed since: the maximum over j of d_j - j g, with a gap g between
    packets. For a Pareto distribution, which has no formula here, it is the longest delay.
    """
    if not way.keep_order or not way.jitter_us:
        return None
    if way.distribution in ("pareto", "paretonormal"):
        return way.delay_us + LONGEST_JITTER * way.jitter_us
    most = LONGEST_JITTER if way.distribution else 1

    def share(x: float) -> float:
        """The share of delays that exceed the mean by at most so many jitters."""
        return (1 + math.erf(x / math.sqrt(2))) / 2 if way.distribution else min(1, max(0, (1 + x) / 2))

    gap = packet_bytes * 8e6 / way.rate_bps / way.jitter_us
    step = max(gap, STEP)  # one factor stands for all packets in a step
    packets = step / gap

    def all_within(x: float) -> float:
        later = range(1, math.ceil((most - x) / step))
        return float(
            share(x) ** ((packets + 1) / 2) * math.prod(share(x + j * step) ** packets for j in later)
        )

    points = [-most + STEP * (i + 0.5) for i in range(round(2 * most / STEP))]
    mean = most - STEP * sum(map(all_within, points))
    return way.delay_us + round(way.jitter_us * mean)
