"""The stages of a direction, as requested or as found in the kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from .kinds import FULL_PACKET_BYTES, KEEP_ORDER_BPS, KINDS, Values, unflattened
from .police import Policer

IFB = {"forward": "ifb_fwd", "reverse": "ifb_rev"}
POLICER_INDEX = {"ifb_fwd": 1, "ifb_rev": 2}  # by which a policer is changed in place
TICK_NS = 64  # psched tick: the unit of htb's buffers
MOST_TICKS = 2**32 - 1


class Devices(NamedTuple):
    """The devices of one direction."""

    ingress: str
    egress: str
    ifb: str


@dataclass(frozen=True)
class Bottleneck:
    """An htb with one class over a queue; bursts are in psched ticks, as the kernel stores them.

    Each packet counts as `least_bytes` or more.
    """

    rate_bps: int
    ceil_bps: int
    burst_ticks: int
    cburst_ticks: int
    kind: str
    queue: Values
    least_bytes: int = 0


class Filter(NamedTuple):
    """Directs packets of a flow to a band of the delay line; the keys of `match` are those of MATCH."""

    match: Values
    band: int


@dataclass(frozen=True)
class DelayLine:
    """Netems, one per band; the first one gets all packets that no filter matches."""

    bands: tuple[Values, ...]
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True)
class Direction:
    """A requested direction; without a bottleneck nothing is redirected."""

    bottleneck: Bottleneck | None
    line: DelayLine | None
    policer: Policer | None = None


@dataclass(frozen=True)
class Found:
    """The kernel's state of one direction, and further state that is needed to change it."""

    direction: Direction
    redirect: str | None  # the target of the redirection; "*" if the device does not exist any more
    hooked: bool  # the ingress device has an ingress hook
    ifb: str  # absent, down or up
    ifb_handle: str | None
    egress_kind: str | None
    egress_handle: str | None
    netem: bool  # the egress device has a netem somewhere
    egress_hooked: bool  # the egress device has an egress hook


ABSENT = Direction(None, None)


def burst_ticks(rate_bps: int, burst_us: int) -> int:
    """Burst that keeps the rate accurate when the timer is late by `burst_us`; at least a full packet.

    In ticks that the burst takes at its rate, as the kernel stores it.
    """
    bytes_per_s = rate_bps // 8
    return ticks_of(rate_bps, max(FULL_PACKET_BYTES, math.ceil(bytes_per_s * burst_us / 1e6)))


def ticks_of(rate_bps: int, size_bytes: int) -> int:
    """How long so many bytes take at a rate; ValueError if that is longer than the kernel can store."""
    ticks = math.ceil(size_bytes / (rate_bps // 8) * 1e9 / TICK_NS)
    if ticks > MOST_TICKS:
        took_s, most_s = (n * TICK_NS // 10**9 for n in (ticks, MOST_TICKS))
        raise ValueError(
            f"a burst of {size_bytes} bytes lasts {took_s} s at {rate_bps} bit/s: more than {most_s} s"
        )
    return ticks


def burst_bytes(rate_bps: int, ticks: int) -> int:
    """A burst in bytes, as tc takes it."""
    return round(ticks * TICK_NS * (rate_bps // 8) / 1e9)


def major(handle: str) -> int:
    """Number of a qdisc's handle such as `1a:`; 0 without one."""
    return int(handle.rstrip(":") or "0", 16)


def class_of(handle: str, band: int) -> str:
    """The class of a prio's band; bands are counted from 0."""
    return f"{handle}{band + 1:x}"


def measured(direction: Direction) -> dict[str, Any] | None:
    """A direction in the format of the data model, without those options of netem that have no effect.

    None without a path.
    """
    if direction == ABSENT:
        return None
    bottleneck, line = direction.bottleneck, direction.line
    shape: dict[str, Any] = {"rate_bps": None, "delay_us": 0, "loss": 0.0, "queue": None}
    if line:
        netem = line.bands[0]
        defaults = {attribute.name: attribute.default for attribute in KINDS["netem"].attributes}
        hidden = {"limit_packets", "seed"} | (
            {"netem_rate_bps"} if netem["netem_rate_bps"] == KEEP_ORDER_BPS else set()
        )
        does = {
            name.partition(".")[0] for name, value in netem.items() if value != defaults.get(name)
        } - hidden
        said = {name: value for name, value in netem.items() if name.partition(".")[0] in does}
        said = {name: round(value) if name.endswith("_us") else value for name, value in said.items()}
        shape |= {"delay_us": 0} | unflattened(said)
        if "netem_rate_bps" in hidden:
            shape["keep_order"] = True
        if line.filters:
            shape["flows"] = [
                item.match | {"delay_us": round(line.bands[item.band]["delay_us"] - netem["delay_us"])}
                for item in line.filters
            ]
    if bottleneck:
        own = {attribute.name for attribute in KINDS[bottleneck.kind].attributes if attribute.key}
        queue = {name: value for name, value in bottleneck.queue.items() if name in own and value is not None}
        shape["rate_bps"] = bottleneck.rate_bps
        shape["queue"] = {"kind": bottleneck.kind} | queue
    if policer := direction.policer:
        burst = burst_bytes(policer.rate_bps, policer.burst_ticks)
        shape["policer"] = {"rate_bps": policer.rate_bps, "burst_bytes": burst}
    return shape


def burst_of(direction: Direction) -> int | None:
    """What the bottleneck passes at once, in bytes; None without one."""
    of = direction.bottleneck
    return burst_bytes(of.rate_bps, of.burst_ticks) if of else None


def report(devices: Devices, found: Found) -> dict[str, Any] | None:
    """`measured` for the kernel's state, with the qdiscs of others that take the place of a stage."""
    shape = measured(found.direction)
    strange: dict[str, Any] = {}
    if found.direction.line is None and found.netem:
        strange[devices.egress] = found.egress_kind
    if found.redirect and found.direction.bottleneck is None:
        strange[devices.ifb] = f"no bottleneck, {found.ifb}"
    if found.direction.bottleneck and found.redirect != devices.ifb:
        strange[devices.ingress] = "not redirected"
    return (shape or {}) | {"unknown": (shape or {}).get("unknown", {}) | strange} if strange else shape
