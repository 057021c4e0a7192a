"""One direction of an emulated path: parse what the kernel holds, compare, and render the tc commands.

Two stages on the router. What enters device `ingress` is redirected to an ifb device whose root, an htb of
one class over the queue, is the bottleneck; it leaves by device `egress` whose root netem delays and loses.
One netem doing both would let its limit stand for the bottleneck's queue and for the delay line at once.
The ingress hook of a device belongs to one direction and its root qdisc to the other: directions never
disturb each other.

Sources: net/sched/sch_htb.c, include/uapi/linux/pkt_sched.h, and tc/ of iproute2.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Json = Mapping[str, Any]
Command = list[str]

IFB = {"forward": "ifb_fwd", "reverse": "ifb_rev"}
LIMIT_KEY = {"pfifo": "limit_packets", "bfifo": "limit_bytes"}
FILTER_PREF = "1"

TICK_NS = 64  # psched tick: the unit of htb's buffers
FULL_PACKET_BYTES = 1514
SMALLEST_PACKET_BYTES = 64
BURST_US = 1000
LINE_RATE_BPS = 100_000_000_000  # assumed where no bottleneck bounds what may enter the delay line
LIMIT_MARGIN_PACKETS = 1000

# tc prints floats as %g; the kernel keeps bytes per second and 32-bit probabilities.
TOLERANCE = 1e-5
RATE_RESOLUTION_BPS = 8
DELAY_RESOLUTION_US = 1  # tc cuts to ticks on the way in, to microseconds on the way out: 12345 reads 12344
LOSS_RESOLUTION = 2**-32
BURST_RESOLUTION_TICKS = 17  # tc cuts the time of a burst to whole microseconds before it makes ticks of it


class Devices(NamedTuple):
    """The devices of one direction."""

    ingress: str
    egress: str
    ifb: str


@dataclass(frozen=True)
class Queue:
    """The queue at the bottleneck; `limit` counts in the unit of its kind."""

    kind: str
    limit: int


@dataclass(frozen=True)
class Bottleneck:
    """An htb of one class; bursts are in psched ticks, as the kernel keeps them."""

    rate_bps: int
    ceil_bps: int
    burst_ticks: int
    cburst_ticks: int
    queue: Queue


@dataclass(frozen=True)
class Netem:
    """The delay line. Every attribute a plain netem has; one with more of them is not parsed as such."""

    delay_us: float
    loss: float
    limit_packets: int


@dataclass(frozen=True)
class Direction:
    """What one direction is asked to be; without a bottleneck nothing is redirected."""

    bottleneck: Bottleneck | None
    netem: Netem | None


@dataclass(frozen=True)
class Found:
    """What the kernel holds of one direction, and what is needed to change it."""

    direction: Direction
    redirect: str | None  # device the ingress is redirected to; "*" when that device is gone
    hooked: bool  # the ingress device has an ingress hook
    ifb: str  # absent, down or up
    ifb_handle: str | None
    egress_kind: str | None
    egress_handle: str | None


ABSENT = Direction(None, None)


# Asking


def burst_ticks(rate_bps: int, burst_us: int) -> int:
    """Burst that keeps the rate accurate when the timer is late by `burst_us`; at least a full packet.

    It is given as the time that it takes at its rate, which is how the kernel keeps it.
    """
    bytes_per_s = rate_bps // 8
    size_bytes = max(FULL_PACKET_BYTES, math.ceil(bytes_per_s * burst_us / 1e6))
    return math.ceil(size_bytes / bytes_per_s * 1e9 / TICK_NS)


def burst_bytes(rate_bps: int, ticks: int) -> int:
    """A burst in bytes, which is how tc is told."""
    return round(ticks * TICK_NS * (rate_bps // 8) / 1e9)


def netem_limit(rate_bps: int | None, delay_us: float) -> int:
    """Packets that the delay line may hold: the smallest ones at the full rate, and a margin."""
    in_flight = (rate_bps or LINE_RATE_BPS) / 8 * delay_us / 1e6 / SMALLEST_PACKET_BYTES
    return min(math.ceil(in_flight) + LIMIT_MARGIN_PACKETS, 2**31 - 1)


def ask(
    rate_bps: int | None, delay_us: int, loss: float, queue: Json | None, burst_us: int = BURST_US
) -> Direction:
    """The direction that the parameters describe; ValueError on what no path can be."""
    if (rate_bps is None) != (queue is None):
        raise ValueError("rate_bps and queue go together: a queue forms only before a bottleneck")
    if rate_bps is not None and rate_bps < RATE_RESOLUTION_BPS:
        raise ValueError(f"rate_bps {rate_bps} is less than one byte per second")
    if delay_us < 0:
        raise ValueError(f"delay_us {delay_us} is negative")
    if burst_us < 0:
        raise ValueError(f"burst_us {burst_us} is negative")
    if not 0 <= loss <= 1:
        raise ValueError(f"loss {loss} is no probability")
    bottleneck = None
    if rate_bps is not None and queue is not None:
        limit = queue[LIMIT_KEY[queue["kind"]]]
        if limit < 1:
            raise ValueError(f"{LIMIT_KEY[queue['kind']]} {limit} leaves no room in the queue")
        ticks = burst_ticks(rate_bps, burst_us)
        bottleneck = Bottleneck(rate_bps, rate_bps, ticks, ticks, Queue(queue["kind"], limit))
    return Direction(bottleneck, Netem(delay_us, loss, netem_limit(rate_bps, delay_us)))


def measured(direction: Direction) -> dict[str, Any] | None:
    """A direction in the shape of the data model; None where there is no path."""
    if direction.netem is None:
        return None
    bottleneck = direction.bottleneck
    return {
        "rate_bps": bottleneck.rate_bps if bottleneck else None,
        "delay_us": round(direction.netem.delay_us),
        "loss": direction.netem.loss,
        "queue": {"kind": bottleneck.queue.kind, LIMIT_KEY[bottleneck.queue.kind]: bottleneck.queue.limit}
        if bottleneck
        else None,
    }


# Parsing


def parse(
    devices: Devices, links: Sequence[Json], qdiscs: Sequence[Json], filters: Sequence[Json], classes: bytes
) -> Found:
    """State of a direction from `ip -j -d link`, `tc -j qdisc`, `tc -j filter` and the ifb's classes.

    ValueError names what belongs to someone else and stands in the way.
    """
    ingress, egress, ifb = devices
    link = next((link for link in links if link["ifname"] == ifb), None)
    if link and link.get("linkinfo", {}).get("info_kind") != "ifb":
        raise ValueError(f"{ifb} exists and is no ifb device")
    redirect = parse_redirect(filters, ingress, ifb)
    egress_root = _root(qdiscs, egress)
    ifb_root = _root(qdiscs, ifb)
    bottleneck = parse_bottleneck(qdiscs, classes, ifb) if redirect == ifb else None
    return Found(
        direction=Direction(bottleneck, parse_netem(egress_root)),
        redirect=redirect,
        hooked=any(qdisc["dev"] == ingress and qdisc["kind"] in {"clsact", "ingress"} for qdisc in qdiscs),
        ifb="absent" if link is None else "up" if "UP" in link["flags"] else "down",
        ifb_handle=ifb_root["handle"] if ifb_root else None,
        egress_kind=egress_root["kind"] if egress_root else None,
        egress_handle=egress_root["handle"] if egress_root else None,
    )


def _root(qdiscs: Sequence[Json], device: str) -> Json | None:
    return next((qdisc for qdisc in qdiscs if qdisc["dev"] == device and qdisc.get("root")), None)


def parse_redirect(filters: Sequence[Json], ingress: str, ifb: str) -> str | None:
    """Device to which all that enters `ingress` goes."""
    entries = [entry for entry in filters if "options" in entry]
    if not entries:
        return None
    actions = entries[0]["options"].get("actions", [])
    targets = [action.get("to_dev") for action in actions if action.get("mirred_action") == "redirect"]
    ours = entries[0]["kind"] == "matchall" and len(entries) == len(actions) == len(targets) == 1
    if not ours or targets[0] not in {ifb, "*"}:
        kinds = ", ".join(f"{entry['kind']} (pref {entry['pref']})" for entry in entries)
        raise ValueError(f"{ingress} has ingress filters that are not this direction's: {kinds}")
    return str(targets[0])


def parse_bottleneck(qdiscs: Sequence[Json], classes: bytes, ifb: str) -> Bottleneck | None:
    """The bottleneck on `ifb`, or None when its qdiscs are not one htb class over one known queue."""
    root = _root(qdiscs, ifb)
    leaves = [qdisc for qdisc in qdiscs if qdisc["dev"] == ifb and not qdisc.get("root")]
    found = list(parse_htb_classes(classes))
    if not root or root["kind"] != "htb" or len(leaves) != 1 or len(found) != 1:
        return None
    (htb,), (leaf,) = found, leaves
    known = leaf["kind"] in LIMIT_KEY and leaf["parent"] == f"{root['handle']}1"
    if not known or int(root["options"]["default"], 16) != 1:
        return None
    queue = Queue(leaf["kind"], leaf["options"]["limit"])
    return Bottleneck(htb.rate_bps, htb.ceil_bps, htb.burst_ticks, htb.cburst_ticks, queue)


def parse_netem(qdisc: Json | None) -> Netem | None:
    """A netem that delays and loses independently and does nothing else; None for every other qdisc."""
    if qdisc is None or qdisc["kind"] != "netem":
        return None
    options = qdisc["options"]
    delay, loss = options.get("delay", {}), options.get("loss-random", {})
    # ecn and gap are printed always; a seed by kernels from 6.6 on. slot, rate, reorder, ... only when set.
    plain = set(options) <= {"limit", "delay", "loss-random", "ecn", "gap", "seed"}
    others = (options.get("ecn"), options.get("gap"), delay.get("jitter"), loss.get("correlation"))
    if not plain or any(others):
        return None
    return Netem(round(delay.get("delay", 0) * 1e6, 3), float(loss.get("loss", 0)), options["limit"])


class HtbClass(NamedTuple):
    """Parameters of an htb class as the kernel keeps them."""

    rate_bps: int
    ceil_bps: int
    burst_ticks: int
    cburst_ticks: int


# Classes come over netlink because iproute2 6.1 has no JSON for them, and its text cuts rates to few digits
# (12345678 reads 12345Kbit), which proves nothing at a tolerance of 1e-5.

NLMSG_DONE, NLMSG_ERROR = 3, 2
RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
TCA_KIND, TCA_OPTIONS = 1, 2
TCA_HTB_PARMS, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 6, 7
NLMSGHDR = struct.Struct("=IHHII")
TCMSG = struct.Struct("=BxxxiIII")
RTATTR = struct.Struct("=HH")
RATESPEC = struct.Struct("=BBHhHI")
HTB_OPT = struct.Struct("=12s12sIIIII")


def class_request(ifindex: int) -> bytes:
    """Netlink request for all classes of a device."""
    length = NLMSGHDR.size + TCMSG.size
    header = NLMSGHDR.pack(length, RTM_GETTCLASS, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
    return header + TCMSG.pack(0, ifindex, 0, 0, 0)


def messages(dump: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and payload of each netlink message."""
    offset = 0
    while offset + NLMSGHDR.size <= len(dump):
        length, kind, *_ = NLMSGHDR.unpack_from(dump, offset)
        yield kind, dump[offset + NLMSGHDR.size : offset + length]
        offset += -(-length // 4) * 4


def _attributes(data: bytes) -> dict[int, bytes]:
    attributes, offset = {}, 0
    while offset + RTATTR.size <= len(data):
        length, kind = RTATTR.unpack_from(data, offset)
        attributes[kind] = data[offset + RTATTR.size : offset + length]
        offset += -(-length // 4) * 4
    return attributes


def parse_htb_classes(dump: bytes) -> Iterator[HtbClass]:
    """The htb classes in a dump of RTM_NEWTCLASS messages."""
    for kind, payload in messages(dump):
        attributes = _attributes(payload[TCMSG.size :])
        if kind != RTM_NEWTCLASS or attributes.get(TCA_KIND) != b"htb\0":
            continue
        options = _attributes(attributes[TCA_OPTIONS])
        rate, ceil, burst, cburst, *_ = HTB_OPT.unpack_from(options[TCA_HTB_PARMS])
        rate_bps = _rate_bps(rate, options.get(TCA_HTB_RATE64))
        ceil_bps = _rate_bps(ceil, options.get(TCA_HTB_CEIL64))
        yield HtbClass(rate_bps, ceil_bps, burst, cburst)


def _rate_bps(ratespec: bytes, rate64: bytes | None) -> int:
    """Bytes per second beyond 32 bits come in an attribute of their own."""
    rate = struct.unpack("=Q", rate64)[0] if rate64 else RATESPEC.unpack(ratespec)[-1]
    return int(rate) * 8


# Comparing


def close(asked: float, found: float, resolution: float = 0) -> bool:
    """Equal but for what the kernel and iproute2 round away."""
    return abs(asked - found) <= max(TOLERANCE * max(abs(asked), abs(found)), resolution)


def same_bottleneck(asked: Bottleneck | None, found: Bottleneck | None) -> bool:
    """Equal within what can be read back."""
    if asked is None or found is None:
        return asked is found
    return (
        close(asked.rate_bps, found.rate_bps, RATE_RESOLUTION_BPS)
        and close(asked.ceil_bps, found.ceil_bps, RATE_RESOLUTION_BPS)
        and close(asked.burst_ticks, found.burst_ticks, BURST_RESOLUTION_TICKS)
        and close(asked.cburst_ticks, found.cburst_ticks, BURST_RESOLUTION_TICKS)
        and asked.queue == found.queue
    )


def same_netem(asked: Netem | None, found: Netem | None) -> bool:
    """Equal within what can be read back."""
    if asked is None or found is None:
        return asked is found
    return (
        close(asked.delay_us, found.delay_us, DELAY_RESOLUTION_US)
        and close(asked.loss, found.loss, LOSS_RESOLUTION)
        and asked.limit_packets == found.limit_packets
    )


def mismatches(devices: Devices, asked: Direction, found: Found) -> dict[str, tuple[Any, Any]]:
    """Name of a part to (asked, found); empty exactly when there is nothing to do."""
    wrong: dict[str, tuple[Any, Any]] = {}
    if not same_bottleneck(asked.bottleneck, found.direction.bottleneck):
        wrong["bottleneck"] = (asked.bottleneck, found.direction.bottleneck)
    if not same_netem(asked.netem, found.direction.netem):
        wrong["netem"] = (asked.netem, found.direction.netem)
    if asked.netem is None and found.egress_kind == "netem":
        wrong["netem"] = (None, f"another netem on {devices.egress}")
    target = devices.ifb if asked.bottleneck else None
    if found.redirect != target:
        wrong["redirect"] = (target, found.redirect)
    ifb = "up" if asked.bottleneck else "absent"
    if found.ifb != ifb:
        wrong[devices.ifb] = (ifb, found.ifb)
    return wrong


# Rendering


def fresh_handle(current: str | None) -> str:
    """A handle that the root has not got: `replace` under the same one keeps what it does not name."""
    return "2:" if current == "1:" else "1:"


def plan(devices: Devices, asked: Direction, found: Found) -> list[Command]:
    """Commands from `found` to `asked`, none when they agree; traffic is redirected last, released first."""
    ingress, egress, ifb = devices
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
        if not same_bottleneck(asked.bottleneck, found.direction.bottleneck):
            commands += render_bottleneck(asked.bottleneck, ifb, fresh_handle(found.ifb_handle))
    if asked.netem and not same_netem(asked.netem, found.direction.netem):
        commands.append(render_netem(asked.netem, egress, fresh_handle(found.egress_handle)))
    if asked.netem is None and found.egress_kind == "netem":
        commands.append(f"tc qdisc del dev {egress} root".split())
    if asked.bottleneck and found.redirect != ifb:
        if not found.hooked:
            commands.append(f"tc qdisc add dev {ingress} clsact".split())
        match = f"tc filter add dev {ingress} ingress pref {FILTER_PREF} matchall"
        commands.append(f"{match} action mirred egress redirect dev {ifb}".split())
    return commands


def render_bottleneck(bottleneck: Bottleneck, ifb: str, handle: str) -> list[Command]:
    """A fresh htb of one class. A quantum divides rates among classes; this only silences a warning."""
    queue = bottleneck.queue
    rate = f"{bottleneck.rate_bps}bit"
    burst = burst_bytes(bottleneck.rate_bps, bottleneck.burst_ticks)
    shape = f"rate {rate} ceil {rate} burst {burst} cburst {burst} quantum {FULL_PACKET_BYTES}"
    return [
        f"tc qdisc replace dev {ifb} root handle {handle} htb default 1".split(),
        f"tc class add dev {ifb} parent {handle} classid {handle}1 htb {shape}".split(),
        f"tc qdisc add dev {ifb} parent {handle}1 handle 10: {queue.kind} limit {queue.limit}".split(),
    ]


def render_netem(netem: Netem, egress: str, handle: str) -> Command:
    """A fresh netem; the loss is in percent, with more digits than the kernel keeps."""
    shape = f"limit {netem.limit_packets} delay {netem.delay_us}us loss {netem.loss * 100:.12g}%"
    return f"tc qdisc replace dev {egress} root handle {handle} netem {shape}".split()


def probes(asked: Direction, found: Direction) -> dict[str, str]:
    """Shell commands that fail in an empty network namespace of a kernel which lacks the feature named.

    What is found in use needs no probe.
    """
    lo = "tc qdisc add dev lo"
    features = {}
    if asked.netem and not found.netem:
        features["netem"] = f"{lo} root netem"
    if asked.bottleneck and not found.bottleneck:
        features["htb"] = f"{lo} root htb"
        features["ifb"] = "ip link add type ifb"
        features["matchall with mirred"] = (
            f"{lo} clsact && tc filter add dev lo ingress matchall action mirred egress redirect dev lo"
        )
    if asked.bottleneck:
        kind = asked.bottleneck.queue.kind
        if not found.bottleneck or kind != found.bottleneck.queue.kind:
            features[kind] = f"{lo} root {kind}"
    return features
