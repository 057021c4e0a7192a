"""Commands of ip and tc that create a direction, change it in place, or test the host's support."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .comparing import bottleneck_differences, line_differences, policer_differences
from .direction import (
    POLICER_INDEX,
    Bottleneck,
    DelayLine,
    Devices,
    Direction,
    Found,
    burst_bytes,
    class_of,
    major,
)
from .kinds import DISTRIBUTIONS, FULL_PACKET_BYTES, MATCH, Command, Differences, Json, words
from .parsing import parse_line
from .police import LARGEST_PACKET_BYTES, Policer

FILTER_PREF = "1"


def handles(asked: Direction, found: Found) -> tuple[str, str]:
    """The handles of the ifb's and the egress' root after `plan`.

    A replaced stage gets a new handle: `replace` with the same handle keeps options that it does not name.
    The handle also encodes the distribution, which tc does not show.
    """
    ifb, egress = found.ifb_handle or "", found.egress_handle or ""
    if asked.bottleneck and bottleneck_differences(asked, found.direction):
        ifb = "2:" if ifb == "1:" else "1:"
    if asked.line and line_differences(asked, found.direction):
        first = DISTRIBUTIONS.index(asked.line.bands[0]["distribution"]) * 16 + 1
        egress = f"{first + 1:x}:" if major(egress) == first else f"{first:x}:"
    return ifb, egress


def duplicates(direction: Direction) -> bool:
    """Whether the direction has a netem that duplicates packets."""
    return direction.line is not None and bool(direction.line.bands[0]["duplicate"])


def plan(devices: Devices, asked: Direction, found: Found) -> list[Command]:
    """Commands from `found` to `asked`, none if they agree; redirection starts last and stops first."""
    ingress, egress, ifb = devices
    ifb_handle, egress_handle = handles(asked, found)
    commands: list[Command] = []
    if found.redirect and (asked.bottleneck is None or found.redirect != ifb):
        commands.append(f"tc filter del dev {ingress} ingress".split())
    if asked.bottleneck is None and found.ifb != "absent":
        commands.append(f"ip link del dev {ifb}".split())
    if asked.bottleneck:
        if found.ifb == "absent":
            commands.append(f"ip link add name {ifb} type ifb".split())
        if found.ifb != "up":
            commands.append(f"ip link set dev {ifb} up".split())
        if bottleneck_differences(asked, found.direction):
            commands += render_bottleneck(asked.bottleneck, ifb, ifb_handle)
    if asked.line and line_differences(asked, found.direction):
        # A kernel refuses a second netem beside one that duplicates, even while one replaces the other.
        if found.netem and (duplicates(asked) or found.direction.line is None or duplicates(found.direction)):
            commands.append(f"tc qdisc del dev {egress} root".split())
        commands += render_line(asked.line, egress, egress_handle)
    if asked.line is None and found.netem:
        commands.append(f"tc qdisc del dev {egress} root".split())
    commands += _plan_policer(devices, asked, found)
    if asked.bottleneck and found.redirect != ifb:
        if not found.hooked:
            commands.append(f"tc qdisc add dev {ingress} clsact".split())
        match = f"tc filter add dev {ingress} ingress pref {FILTER_PREF} matchall"
        commands.append(f"{match} action mirred egress redirect dev {ifb}".split())
    return commands


def _plan_policer(devices: Devices, asked: Direction, found: Found) -> list[Command]:
    commands: list[Command] = []
    if not policer_differences(asked, found.direction):
        return commands
    if found.direction.policer:
        commands.append(f"tc filter del dev {devices.egress} egress".split())
    if asked.policer:
        if not found.egress_hooked:
            commands.append(f"tc qdisc add dev {devices.egress} clsact".split())
        commands.append(_filter(asked.policer, devices.egress, POLICER_INDEX[devices.ifb]))
    return commands


def render_bottleneck(bottleneck: Bottleneck, ifb: str, handle: str) -> list[Command]:
    """A new htb with one class over its queue."""
    return [
        f"tc qdisc replace dev {ifb} root handle {handle} htb default 1".split(),
        ["tc", "class", "add", *_htb_class(bottleneck, ifb, handle)],
        f"tc qdisc add dev {ifb} parent {handle}1 handle 10:".split()
        + words(bottleneck.kind, bottleneck.queue),
    ]


def _htb_class(bottleneck: Bottleneck, ifb: str, handle: str) -> list[str]:
    """The quantum divides rates among classes; here it only avoids a warning."""
    burst = burst_bytes(bottleneck.rate_bps, bottleneck.burst_ticks)
    rate = f"rate {bottleneck.rate_bps}bit ceil {bottleneck.rate_bps}bit burst {burst} cburst {burst}"
    place = f"dev {ifb} parent {handle} classid {handle}1"
    least = f" mpu {bottleneck.least_bytes}" if bottleneck.least_bytes else ""
    return f"{place} htb {rate} quantum {FULL_PACKET_BYTES}{least}".split()


def render_line(line: DelayLine, egress: str, handle: str) -> list[Command]:
    """A new netem, or a new prio over netems with the filters that choose among them."""
    root = f"tc qdisc replace dev {egress} root handle {handle}".split()
    if len(line.bands) == 1:
        return [root + words("netem", line.bands[0])]
    first_band_only = " ".join("0" * 16)
    commands = [root + f"prio bands {len(line.bands)} priomap {first_band_only}".split()]
    for i, band in enumerate(line.bands):
        own = f"{major(handle) + 0x100 * (i + 1):x}:"
        place = f"tc qdisc add dev {egress} parent {class_of(handle, i)} handle {own}"
        commands.append(place.split() + words("netem", band))
    for i, item in enumerate(line.filters):
        family = "ipv6" if ":" in f"{item.match.get('src')}{item.match.get('dst')}" else "ip"
        said = [
            word
            for a in MATCH
            if a.name in item.match
            for word in (a.word, *a.unit.words(item.match[a.name]))
        ]
        place = f"tc filter add dev {egress} parent {handle} pref {i + 1} protocol {family} flower"
        commands.append([*place.split(), *said, "classid", class_of(handle, item.band)])
    return commands


def _filter(policer: Policer, device: str, index: int) -> Command:
    """Polices all that leaves a device."""
    match = f"tc filter add dev {device} egress pref {FILTER_PREF} matchall action"
    return match.split() + _police(policer, index)


def _police(policer: Policer, index: int) -> list[str]:
    burst = burst_bytes(policer.rate_bps, policer.burst_ticks)
    shape = f"police index {index} rate {policer.rate_bps}bit burst {burst} mtu {LARGEST_PACKET_BYTES}"
    return f"{shape} conform-exceed drop/ok".split()


def render_change(
    devices: Devices, asked: Direction, roots: tuple[str, str], before: Direction | None = None
) -> list[Command]:
    """Commands that change a direction to `asked` in place, with all attributes; no packet is lost.

    `roots` are the handles of the existing direction. A policer is left alone if it was the same `before`: a
    change fills its bucket.
    """
    commands: list[Command] = []
    if asked.bottleneck:
        handle, queue = roots[0], words(asked.bottleneck.kind, asked.bottleneck.queue, change=True)
        commands.append(["tc", "class", "change", *_htb_class(asked.bottleneck, devices.ifb, handle)])
        commands.append(f"tc qdisc change dev {devices.ifb} parent {handle}1 handle 10:".split() + queue)
    if asked.policer and not (before and before.policer == asked.policer):
        police = _police(asked.policer, POLICER_INDEX[devices.ifb])
        commands.append(["tc", "actions", "change", "action", *police])
    if asked.line:
        one = len(asked.line.bands) == 1
        for i, band in enumerate(asked.line.bands):
            parent = "root" if one else f"parent {class_of(roots[1], i)}"
            commands.append(
                f"tc qdisc change dev {devices.egress} {parent}".split() + words("netem", band, change=True)
            )
    return commands


# Testing support


def probes(asked: Direction, found: Found) -> dict[str, list[Command]]:
    """Commands, by stage, that fail in an empty network namespace if the host lacks a requested feature.

    A stage that is already as requested needs no test.
    """
    stages: dict[str, list[Command]] = {}
    if asked.bottleneck and bottleneck_differences(asked, found.direction):
        stages["bottleneck"] = render_bottleneck(asked.bottleneck, "lo", "1:")
    if asked.bottleneck and found.redirect is None:
        redirect = "tc filter add dev lo ingress matchall action mirred egress redirect dev lo"
        hook = ["tc", "qdisc", "add", "dev", "lo", "clsact"]
        stages["redirection"] = [["ip", "link", "add", "type", "ifb"], hook, redirect.split()]
    if asked.policer and policer_differences(asked, found.direction):
        hook = ["tc", "qdisc", "add", "dev", "lo", "clsact"]
        stages["policer"] = [hook, _filter(asked.policer, "lo", 1)]
    if asked.line and line_differences(asked, found.direction):
        stages["delay line"] = render_line(asked.line, "lo", handles(asked, found)[1])
    return stages


def probe_differences(asked: Direction, qdiscs: Sequence[Json]) -> Differences:
    """Missing settings of a delay line that was created on lo: old kernels ignore unknown attributes."""
    line = parse_line(qdiscs, [], "lo")
    if asked.line is None or line is None:
        return {}
    return line_differences(Direction(None, replace(asked.line, filters=())), Direction(None, line))
