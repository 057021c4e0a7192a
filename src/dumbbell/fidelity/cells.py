"""What is measured: cells, each a path and the traffic that measures it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from dumbbell import units
from dumbbell.plan.path import ETHERNET_BYTES, IP_HEADER_BYTES, UDP_HEADER_BYTES

RATES_BPS = (10**6, 10**7, 10**8, 5 * 10**8)
VIRTUAL_RATES_BPS = (10**6, 10**7, 10**8, 10**9)
VIRTUAL_ONCE_BPS = 10**10
RTTS_US = (0, 10_000, 100_000)
LOSSES = (0.0, 0.001, 0.01, 0.05)
LADDER_BPS = (
    150 * 10**6,
    200 * 10**6,
    250 * 10**6,
    300 * 10**6,
    400 * 10**6,
)  # for the highest rate that is held
# Ethernet, IPv4, UDP: what the bottleneck counts besides the payload.
HEADERS_BYTES = ETHERNET_BYTES + IP_HEADER_BYTES[4] + UDP_HEADER_BYTES
LEAST_PAYLOAD_BYTES, MOST_PAYLOAD_BYTES = 32, 1472
JUMBO_PAYLOAD_BYTES = 8972  # of a frame of 9014 bytes
RTT_TOLERANCE, RTT_MARGIN_MS = 0.01, 0.5
RATE_TOLERANCE, FAST_BPS, FAST_TOLERANCE = 0.02, 500 * 10**6, 0.05
VIRTUAL_RTT_MARGIN_MS, VIRTUAL_RATE_TOLERANCE = 0.1, 0.005
QUEUE_TOLERANCE, QUEUE_MARGIN = (
    0.01,
    2.0,
)  # as a share and in packets; only in virtual time, where hosts share a clock
OVERLOAD, QUEUE_S = 1.15, 0.1  # a sender that is late for less leaves no gap in a bottleneck
LEAST_S = 5.0  # of a measurement, beside which the last packets' wait for a core is short
# Of fast cells where nothing waits for a core: the burst that a bottleneck begins with weighs little in them.
VIRTUAL_LEAST_S = {10**9: 1.0}

Effect = Literal["loss", "duplicate", "reorder", "gemodel"]


@dataclass(frozen=True)
class Cell:
    """One setting of the path, the same in both directions, and the traffic that measures it."""

    name: str
    rate_bps: int
    rtt_us: int
    loss: float
    effect: Effect
    netem: dict[str, Any]  # parameters of tc_path beyond rate, delay and queue
    queue_packets: int
    payload_bytes: int
    offered_bps: int  # payload
    duration_s: float
    packets: int  # that pass the bottleneck
    judged: bool = True  # the ladder only looks for the highest rate
    virtual: bool = False  # measured in virtual time, whose tolerances are narrower

    @property
    def frame_bytes(self) -> int:
        """What a packet counts in the bottleneck."""
        return self.payload_bytes + HEADERS_BYTES

    @property
    def queue_margin_packets(self) -> float:
        """How far the depth of the full queue may be from what is asked."""
        return max(QUEUE_MARGIN, QUEUE_TOLERANCE * self.queue_packets)

    @property
    def rtt_margin_ms(self) -> float:
        """How far the idle RTT may be from what is asked."""
        return VIRTUAL_RTT_MARGIN_MS if self.virtual else RTT_TOLERANCE * self.rtt_us / 1000 + RTT_MARGIN_MS

    @property
    def rate_tolerance(self) -> float:
        """How far the rate may be from what is asked, as a share of it."""
        if self.virtual:
            return VIRTUAL_RATE_TOLERANCE
        return FAST_TOLERANCE if self.rate_bps >= FAST_BPS else RATE_TOLERANCE


def cells(*, virtual: bool = False) -> list[Cell]:
    """The matrix, then one cell for each other thing that netem does.

    Then the ladder, or in virtual time a rate that no small machine carries, and frames of 9014 bytes, which
    need hosts with an MTU of 9000.
    """
    others = [
        _cell(10**7, 10_000, 0.0, "duplicate", {"duplicate": 0.05}),
        _cell(10**7, 10_000, 0.0, "gemodel", {"loss_gemodel": {"p": 0.01, "r": 0.25}}),
        _reorder_cell(0.1),
    ]
    if virtual:
        once = _cell(VIRTUAL_ONCE_BPS, 10_000, 0.001, "loss", {"loss": 0.001}, least_s=1.0)
        found = [*_matrix(VIRTUAL_RATES_BPS, VIRTUAL_LEAST_S), *others, once, *_jumbo()]
        return [replace(cell, virtual=True) for cell in found]
    ladder = [_cell(rate, 0, 0.0, "loss", {}, judged=False) for rate in LADDER_BPS]
    return [*_matrix(RATES_BPS, {}), *others, *ladder]


def _matrix(rates_bps: Sequence[int], least_s: Mapping[int, float]) -> list[Cell]:
    return [
        _cell(rate, rtt, loss, "loss", {"loss": loss}, least_s=least_s.get(rate, LEAST_S))
        for rate, rtt, loss in product(rates_bps, RTTS_US, LOSSES)
    ]


def _jumbo() -> list[Cell]:
    return [
        _cell(rate, 10_000, loss, "loss", {"loss": loss}, largest=JUMBO_PAYLOAD_BYTES, prefix="jumbo-")
        for rate, loss in product((10**8, 10**9), (0.0, 0.01))
    ]


def _cell(
    rate_bps: int,
    rtt_us: int,
    loss: float,
    effect: Effect,
    netem: dict[str, Any],
    *,
    judged: bool = True,
    least_s: float = LEAST_S,
    largest: int = MOST_PAYLOAD_BYTES,
    prefix: str = "",
) -> Cell:
    """A saturated bottleneck: frames as small as 5 000 packets/s need, and packets enough for the loss.

    Cells of jumbo frames all have the largest.
    """
    payload = rate_bps // (8 * 5000) - HEADERS_BYTES
    payload = largest if largest > MOST_PAYLOAD_BYTES else min(max(payload, LEAST_PAYLOAD_BYTES), largest)
    packets_per_s = rate_bps / 8 / (payload + HEADERS_BYTES)
    rarest = min([share for share in (loss, netem.get("duplicate", 0)) if share], default=1.0)
    duration_s = math.ceil(max(least_s, 10 / rarest / packets_per_s))
    what = effect if effect != "loss" else f"{100 * loss:g}%"
    return Cell(
        name=f"{prefix}{units.render_rate(rate_bps)}-{rtt_us // 1000}ms-{what}",
        rate_bps=rate_bps,
        rtt_us=rtt_us,
        loss=loss,
        effect=effect,
        netem=netem,
        queue_packets=max(10, math.ceil(packets_per_s * QUEUE_S)),
        payload_bytes=payload,
        offered_bps=int(OVERLOAD * packets_per_s * payload * 8),
        duration_s=duration_s,
        packets=int(duration_s * packets_per_s),
        judged=judged,
    )


def _reorder_cell(share: float) -> Cell:
    """A packet each 20 ms and 30 ms of delay: one that is sent at once overtakes just the one before it."""
    spacing_ms, payload, duration_s = 20, 200, 40.0
    return Cell(
        name="10mbit-60ms-reorder",
        rate_bps=10**7,
        rtt_us=60_000,
        loss=0.0,
        effect="reorder",
        netem={"reorder": share},
        queue_packets=100,
        payload_bytes=payload,
        offered_bps=payload * 8 * 1000 // spacing_ms,
        duration_s=duration_s,
        packets=int(duration_s * 1000 / spacing_ms),
    )
