"""One direction of an emulated path: parse what the kernel holds, compare, and render the tc commands.

Two stages on the router. What enters device `ingress` is redirected to an ifb device whose root, an htb of
one class over the queue, is the bottleneck; it leaves by device `egress`, whose root is the delay line: a
netem, or a prio over several netems among which filters choose for each flow. One netem doing both would let
its limit stand for the bottleneck's queue and for the delay line at once. The ingress hook of a device
belongs to one direction and its root qdisc to the other: directions never disturb each other.

What a qdisc can be asked is said once, in the table KINDS; parsing, comparing and rendering come from it.

Sources: net/sched/sch_htb.c, sch_netem.c, include/uapi/linux/pkt_sched.h, and tc/ of iproute2.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

Json = Mapping[str, Any]
Command = list[str]
Values = dict[str, Any]  # attributes of a qdisc by their names in KINDS
Differences = dict[str, tuple[Any, Any]]  # by name: asked, found

IFB = {"forward": "ifb_fwd", "reverse": "ifb_rev"}
FILTER_PREF = "1"

TICK_NS = 64  # psched tick: the unit of htb's buffers
FULL_PACKET_BYTES = 1514
SMALLEST_PACKET_BYTES = 64
BURST_US = 1000
LINE_RATE_BPS = 100_000_000_000  # assumed where no bottleneck bounds what may enter the delay line
LIMIT_MARGIN_PACKETS = 1000
MOST_PACKETS = 2**31 - 1
MOST_BANDS = 16  # TCQ_PRIO_BANDS
TABLE_SIGMAS = 4  # a distribution's table holds 16-bit multiples of 1/8192 of the jitter

# A netem with a rate sends every packet after the one before it. This one takes no time for any of them.
KEEP_ORDER_BPS = 80 * 10**12

# tc prints floats as %g; the kernel keeps bytes per second and 32-bit probabilities.
TOLERANCE = 1e-5
RATE_RESOLUTION_BPS = 8
BURST_RESOLUTION_TICKS = 17  # tc cuts the time of a burst to whole microseconds before it makes ticks of it


# What a qdisc can be asked


class Unit(NamedTuple):
    """A kind of value: its type, how tc is told, what `tc -j` shows, and how much is lost between the two."""

    type: str
    words: Callable[[Any], list[str]]
    read: Callable[[Any], Any] = lambda shown: shown
    resolution: float = 0


def _us(value: float) -> list[str]:
    return [f"{value}us"]


def _flag(yes: str, no: str) -> Unit:
    return Unit("bool", lambda on: [yes] if on else [no] if no else [])


COUNT = Unit("int", lambda count: [str(count)])
WORD = Unit("str", lambda word: [word])
RATE = Unit("int", lambda bps: [f"{bps}bit"], lambda bytes_per_s: round(bytes_per_s * 8), RATE_RESOLUTION_BPS)
# More digits than the kernel keeps.
SHARE = Unit("float", lambda share: [f"{share * 100:.12g}%"], float, 2**-32)
PROBABILITY = Unit("float", lambda share: [f"{share:.12g}"], float, 2**-32)
# netem shows seconds; tc cuts to ticks on the way in, to microseconds on the way out: 12345 reads 12344.
TIME = Unit("int", _us, lambda seconds: round(seconds * 1e6, 3), 1)
SHORT_TIME = Unit("int", _us, resolution=2)  # codel counts in 1024 ns
JIFFIES = Unit("int", _us, resolution=10_000)


class Attribute(NamedTuple):
    """One attribute of a qdisc.

    `word` stands before its value in a command; without one the value follows that of the attribute before.
    `key` is where `tc -j` shows it, with a dot for what is inside; attributes of one such object are named
    together or not at all. Without a key it cannot be read back and is not compared.
    """

    name: str
    word: str
    key: str
    unit: Unit
    default: Any = None  # None: the kernel's own choice, which is not compared; ...: must be given
    changeable: bool = True  # by `tc qdisc change`

    @property
    def group(self) -> str:
        """What it is named together with."""
        return self.key.partition(".")[0] or self.name


class Kind(NamedTuple):
    """A kind of qdisc: what it can be asked, and what tc shows of one that was asked nothing else."""

    attributes: tuple[Attribute, ...]
    neutral: Json = MappingProxyType({})


A = Attribute
ECN = _flag("ecn", "noecn")
KINDS = {
    "netem": Kind(
        (
            A("limit_packets", "limit", "limit", COUNT, ...),
            A("delay_us", "delay", "delay.delay", TIME, 0),
            A("jitter_us", "", "delay.jitter", TIME, 0),
            A("delay_correlation", "", "delay.correlation", SHARE, 0.0),
            A("distribution", "distribution", "", WORD),  # never dumped: its fingerprint is in the handle
            A("loss", "loss random", "loss-random.loss", SHARE, 0.0),
            A("loss_correlation", "", "loss-random.correlation", SHARE, 0.0),
            A("loss_state.p13", "loss state", "loss-state.p13", SHARE, 0.0),
            A("loss_state.p31", "", "loss-state.p31", SHARE, 0.0),
            A("loss_state.p32", "", "loss-state.p32", SHARE, 0.0),
            A("loss_state.p23", "", "loss-state.p23", SHARE, 0.0),
            A("loss_state.p14", "", "loss-state.p14", SHARE, 0.0),
            A("loss_gemodel.p", "loss gemodel", "loss-gemodel.p", SHARE, 0.0),
            A("loss_gemodel.r", "", "loss-gemodel.r", SHARE, 0.0),
            A("loss_gemodel.loss_bad", "", "loss-gemodel.1-h", SHARE, 0.0),
            A("loss_gemodel.loss_good", "", "loss-gemodel.1-k", SHARE, 0.0),
            A("duplicate", "duplicate", "duplicate.duplicate", SHARE, 0.0),
            A("duplicate_correlation", "", "duplicate.correlation", SHARE, 0.0),
            A("corrupt", "corrupt", "corrupt.corrupt", SHARE, 0.0),
            A("corrupt_correlation", "", "corrupt.correlation", SHARE, 0.0),
            A("reorder", "reorder", "reorder.reorder", SHARE, 0.0),
            A("reorder_correlation", "", "reorder.correlation", SHARE, 0.0),
            A("reorder_gap", "gap", "gap", COUNT, 0),
            A("slot.min_us", "slot", "slot.min-delay", TIME, 0),
            A("slot.max_us", "", "slot.max-delay", TIME, 0),
            A("slot.packets", "packets", "slot.packets", COUNT, 0),
            A("slot.bytes", "bytes", "slot.bytes", COUNT, 0),
            A("netem_rate_bps", "rate", "rate.rate", RATE, 0),  # keeps order; the bottleneck's rate is htb's
            A("seed", "seed", "seed", COUNT),
        )
    ),
    "pfifo": Kind((A("limit_packets", "limit", "limit", COUNT, ...),)),
    "bfifo": Kind((A("limit_bytes", "limit", "limit", COUNT, ...),)),
    "codel": Kind(
        (
            A("limit_packets", "limit", "limit", COUNT, 1000),
            A("target_us", "target", "target", SHORT_TIME, 5_000),
            A("interval_us", "interval", "interval", SHORT_TIME, 100_000),
            A("ecn", "", "ecn", ECN, False),
        )
    ),
    "fq_codel": Kind(
        (
            A("limit_packets", "limit", "limit", COUNT, 10_240),
            A("memory_limit_bytes", "memory_limit", "memory_limit", COUNT, 2**25),
            A("flows", "flows", "flows", COUNT, 1024, changeable=False),
            A("quantum_bytes", "quantum", "quantum", COUNT, FULL_PACKET_BYTES),
            A("target_us", "target", "target", SHORT_TIME, 5_000),
            A("interval_us", "interval", "interval", SHORT_TIME, 100_000),
            A("ecn", "", "ecn", ECN, True),
        ),
        {"drop_batch": 64},
    ),
    "cake": Kind(
        (
            A("limit_bytes", "memlimit", "memlimit", COUNT),
            A("rtt_us", "rtt", "rtt", SHORT_TIME, 100_000),
            A("diffserv", "", "diffserv", WORD, "besteffort"),
            A("flowmode", "", "flowmode", WORD, "triple-isolate"),
        ),
        {"bandwidth": "unlimited", "ack-filter": "disabled", "split_gso": True, "raw": True, "fwmark": "0"},
    ),
    "pie": Kind(
        (
            A("limit_packets", "limit", "limit", COUNT, 1000),
            A("target_us", "target", "target", SHORT_TIME, 15_000),
            A("tupdate_us", "tupdate", "tupdate", JIFFIES, 15_000),
            A("ecn", "", "ecn", ECN, False),
        ),
        {"alpha": 2, "beta": 20},
    ),
    # tc makes `ewma` of burst, min and avpkt, and Scell_log of the bandwidth.
    "red": Kind(
        (
            A("limit_bytes", "limit", "limit", COUNT, ...),
            A("min_bytes", "min", "min", COUNT),
            A("max_bytes", "max", "max", COUNT),
            A("probability", "probability", "probability", PROBABILITY, 0.02),
            A("ecn", "", "ecn", _flag("ecn", ""), False),
            A("average_packet_bytes", "avpkt", "", COUNT, 1000),
            A("burst_packets", "burst", "", COUNT),
            A("bandwidth_bps", "bandwidth", "", RATE),
        ),
        {"ewma": ..., "Scell_log": ...},
    ),
}
QUEUES = tuple(kind for kind in KINDS if kind != "netem")
LOSS_MODELS = {"loss": "loss-random", "loss_state": "loss-state", "loss_gemodel": "loss-gemodel"}
DISTRIBUTIONS = (None, "normal", "pareto", "paretonormal")  # in the order of their fingerprints

ZERO = {"int": 0, "float": 0.0, "bool": False, "str": ""}
COMPUTED = {"netem": {"limit_packets", "netem_rate_bps"}, "red": {"bandwidth_bps"}}  # from other options
PASSIVE = ("distribution", "netem_rate_bps", "seed")  # attributes that do nothing alone
PER_PACKET = ("loss", "loss_state", "loss_gemodel", "duplicate", "corrupt", "reorder", "slot")
NEEDS = {
    "jitter_us": "delay_us",
    "delay_correlation": "jitter_us",
    "loss_correlation": "loss",
    "loss_state": "loss_state.p13",
    "loss_gemodel": "loss_gemodel.p",
    "duplicate_correlation": "duplicate",
    "corrupt_correlation": "corrupt",
    "reorder": "delay_us",
    "reorder_correlation": "reorder",
    "reorder_gap": "reorder",
    "slot": "slot.min_us",
}
HTB_RESOLUTION = {
    "rate_bps": RATE_RESOLUTION_BPS,
    "ceil_bps": RATE_RESOLUTION_BPS,
    "burst_ticks": BURST_RESOLUTION_TICKS,
    "cburst_ticks": BURST_RESOLUTION_TICKS,
}

# What a filter can match, as flower is told and as it shows it.
MATCH = (
    A("protocol", "ip_proto", "ip_proto", WORD),
    A("src", "src_ip", "src_ip", WORD),
    A("dst", "dst_ip", "dst_ip", WORD),
    A("src_port", "src_port", "src_port", COUNT),
    A("dst_port", "dst_port", "dst_port", COUNT),
)


def arguments(kind: str) -> dict[str, Any]:
    """Ansible's argument specification of what a qdisc can be asked."""
    spec: dict[str, Any] = {}
    for attribute in KINDS[kind].attributes:
        outer, _, inner = attribute.name.partition(".")
        if inner:
            spec.setdefault(outer, {"type": "dict", "options": {}})["options"][inner] = {
                "type": attribute.unit.type
            }
        elif outer not in COMPUTED.get(kind, ()):
            spec[outer] = {"type": attribute.unit.type}
    return spec


def complete(kind: str, given: Json) -> Values:
    """All attributes of a qdisc, with defaults where none was given; ValueError names what it has not."""
    attributes = {attribute.name: attribute for attribute in KINDS[kind].attributes}
    unknown = [name for name, value in given.items() if value is not None and name not in attributes]
    if unknown:
        raise ValueError(f"a {kind} has no {', '.join(unknown)}; it has {', '.join(attributes)}")
    values = {
        name: attribute.default if given.get(name) is None else given[name]
        for name, attribute in attributes.items()
    }
    missing = [name for name, value in values.items() if value is ...]
    if missing:
        raise ValueError(f"a {kind} needs {', '.join(missing)}")
    return values


def read(kind: str, options: Json) -> Values:
    """Attributes of a qdisc from `options` of `tc -j`; what is not in the table comes under `unknown.`."""
    shown = _flat(options)
    values: Values = {}
    for attribute in KINDS[kind].attributes:
        if attribute.key:
            # tc does not show what is zero or off.
            nothing = None if attribute.default is None else ZERO[attribute.unit.type]
            found = shown.pop(attribute.key, None)
            values[attribute.name] = nothing if found is None else attribute.unit.read(found)
    neutral = KINDS[kind].neutral
    strange = {key: value for key, value in shown.items() if value and neutral.get(key) not in (..., value)}
    return values | {f"unknown.{key}": value for key, value in strange.items()}


def words(kind: str, values: Values, change: bool = False) -> list[str]:
    """A qdisc as a command names it. To change one in place, everything that it would keep is named."""
    model = next((shown for name, shown in LOSS_MODELS.items() if any(_under(values, name))), "loss-random")
    said = [kind]
    for group, members in groupby(KINDS[kind].attributes, key=lambda attribute: attribute.group):
        attributes = [attribute for attribute in members if attribute.changeable or not change]
        if kind == "netem":
            set_ = any(values[attribute.name] != attribute.default for attribute in attributes)
            without_effect = group == "distribution" and not values["jitter_us"]
            other_model = group.startswith("loss-") and group != model
            if without_effect or other_model or not (set_ or change):
                continue
        for attribute in attributes:
            value = values[attribute.name]
            said += attribute.word.split() + attribute.unit.words(value) if value is not None else []
    return said


def _under(values: Values, name: str) -> Iterator[Any]:
    """Values of the attribute `name` and of those inside it."""
    return (value for key, value in values.items() if key == name or key.startswith(f"{name}."))


def _flat(nested: Json) -> Values:
    """`{"delay": {"jitter": 1}}` as `{"delay.jitter": 1}`."""
    flat: Values = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": inside for inner, inside in value.items()}
        else:
            flat[key] = value
    return flat


def _nested(flat: Json) -> Values:
    """The inverse of `_flat`."""
    nested: Values = {}
    for key, value in flat.items():
        outer, dot, inner = key.partition(".")
        if dot:
            nested.setdefault(outer, {})[inner] = value
        else:
            nested[key] = value
    return nested


def close(asked: float, found: float, resolution: float = 0) -> bool:
    """Equal but for what the kernel and iproute2 round away."""
    return abs(asked - found) <= max(TOLERANCE * max(abs(asked), abs(found)), resolution)


def differences(kind: str, asked: Values, found: Values) -> Differences:
    """Attributes that differ by more than is lost in reading back; what was not asked may be anything."""
    wrong: Differences = {name: (None, value) for name, value in found.items() if name.startswith("unknown.")}
    for attribute in KINDS[kind].attributes:
        name, unit = attribute.name, attribute.unit
        want, got = asked[name], found.get(name)
        if want is None or not attribute.key:
            continue
        if unit.type in {"int", "float"} and got is not None:
            same = close(want, got, unit.resolution)
        else:
            same = want == got
        if not same:
            wrong[name] = (want, got)
    return wrong


# The stages of a direction


class Devices(NamedTuple):
    """The devices of one direction."""

    ingress: str
    egress: str
    ifb: str


@dataclass(frozen=True)
class Bottleneck:
    """An htb of one class over a queue; bursts are in psched ticks, as the kernel keeps them."""

    rate_bps: int
    ceil_bps: int
    burst_ticks: int
    cburst_ticks: int
    kind: str
    queue: Values


class Filter(NamedTuple):
    """Gives the packets of a flow to a band of the delay line; `match` is by the names in MATCH."""

    match: Values
    band: int


@dataclass(frozen=True)
class DelayLine:
    """Netems; the first takes all that no filter gives to another."""

    bands: tuple[Values, ...]
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True)
class Direction:
    """What one direction is asked to be; without a bottleneck nothing is redirected."""

    bottleneck: Bottleneck | None
    line: DelayLine | None


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
    netem: bool  # the egress device has a netem somewhere


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


def netem_limit(rate_bps: int | None, longest_us: float) -> int:
    """Packets that a delay line may hold: the smallest ones at the full rate, and a margin."""
    in_flight = (rate_bps or LINE_RATE_BPS) / 8 * longest_us / 1e6 / SMALLEST_PACKET_BYTES
    return min(math.ceil(in_flight) + LIMIT_MARGIN_PACKETS, MOST_PACKETS)


def ask(asked: Json, line: bool = False) -> Direction:
    """The direction that the parameters of the module describe; ValueError on what no path can be.

    A delay line that would do nothing is left out, unless `line` asks for one.
    """
    rate_bps, queue = asked.get("rate_bps"), asked.get("queue")
    if (rate_bps is None) != (queue is None):
        raise ValueError("rate_bps and queue go together: a queue forms only before a bottleneck")
    bottleneck = None
    if rate_bps is not None and queue is not None:
        if rate_bps < RATE_RESOLUTION_BPS:
            raise ValueError(f"rate_bps {rate_bps} is less than one byte per second")
        burst_us = BURST_US if asked.get("burst_us") is None else asked["burst_us"]
        if burst_us < 0:
            raise ValueError(f"burst_us {burst_us} is negative")
        ticks = burst_ticks(rate_bps, burst_us)
        values = _ask_queue(queue["kind"], {k: v for k, v in queue.items() if k != "kind"}, rate_bps)
        bottleneck = Bottleneck(rate_bps, rate_bps, ticks, ticks, queue["kind"], values)
    netem = _ask_netem(asked)
    flows = asked.get("flows") or []
    idle = complete("netem", {name: netem[name] for name in ("limit_packets", *PASSIVE)})
    if not (line or flows or netem != idle):
        return Direction(bottleneck, None)
    return Direction(bottleneck, _ask_line(netem, flows, rate_bps))


def _ask_queue(kind: str, given: Json, rate_bps: int) -> Values:
    if kind not in QUEUES:
        raise ValueError(f"queue {kind} is not one of {', '.join(QUEUES)}")
    values = complete(kind, given)
    for name, value in values.items():
        if name.startswith("limit_") and value is not None and value < 1:
            raise ValueError(f"{name} {value} leaves no room in the queue")
    _check_ranges(values)
    if kind == "red":
        # Floyd's advice: max is three times min; the burst that tc-red(8) gives. The rest is room for bursts.
        values["max_bytes"] = values["max_bytes"] or math.ceil(values["limit_bytes"] / 4)
        values["min_bytes"] = values["min_bytes"] or math.ceil(values["max_bytes"] / 3)
        low, high, packet = values["min_bytes"], values["max_bytes"], values["average_packet_bytes"]
        if not 0 < low < high <= values["limit_bytes"]:
            raise ValueError(
                f"red needs min_bytes {low} < max_bytes {high} <= limit_bytes {values['limit_bytes']}"
            )
        values["burst_packets"] = values["burst_packets"] or math.ceil((2 * low + high) / (3 * packet))
        values["bandwidth_bps"] = rate_bps
    return values


def _ask_netem(asked: Json) -> Values:
    names = [attribute.name for attribute in KINDS["netem"].attributes]
    flat = _flat({name: value for name, value in asked.items() if value is not None})
    given = {name: flat[name] for name in names if flat.get(name) is not None}
    if given.get("delay_us", 0) > 0:
        given["delay_us"] = max(0, given["delay_us"] - (asked.get("trim_us") or 0))
    if "loss_state.p13" in given:  # what tc takes for those left out
        given = {"loss_state.p31": 1 - given["loss_state.p13"], "loss_state.p23": 1.0} | given
    if "loss_gemodel.p" in given:
        given = {"loss_gemodel.r": 1 - given["loss_gemodel.p"], "loss_gemodel.loss_bad": 1.0} | given
    values = complete("netem", given | {"limit_packets": 0})
    _check_ranges(values)
    models = [name for name in LOSS_MODELS if any(_under(values, name))]
    if len(models) > 1:
        raise ValueError(f"{' and '.join(models)} are models of the same loss: give one")
    for name, other in NEEDS.items():
        if any(_under(values, name)) and not values[other]:
            raise ValueError(f"{name} has no effect without {other}")
    if values["distribution"] not in DISTRIBUTIONS:
        raise ValueError(
            f"distribution {values['distribution']} is not one of {', '.join(DISTRIBUTIONS[1:])}"
        )
    if values["reorder"]:
        values["reorder_gap"] = values["reorder_gap"] or 1  # as tc does
    if values["slot.max_us"] == 0:
        values["slot.max_us"] = values["slot.min_us"]
    if asked.get("keep_order"):
        if values["reorder"]:
            raise ValueError("reorder and keep_order contradict each other")
        values["netem_rate_bps"] = KEEP_ORDER_BPS
    return values


def _check_ranges(values: Values) -> None:
    for name, value in values.items():
        if isinstance(value, float) and not 0 <= value <= 1:
            raise ValueError(f"{name} {value} is no probability")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{name} {value} is negative")


def _ask_line(netem: Values, flows: Sequence[Json], rate_bps: int | None) -> DelayLine:
    if flows and netem["duplicate"]:
        raise ValueError(
            "duplicate and flows exclude each other: kernels refuse a netem beside one that duplicates"
        )
    delays = sorted({0} | {flow["delay_us"] for flow in flows})
    if any(flow["delay_us"] < 1 for flow in flows):
        raise ValueError("delay_us of a flow is added to that of the path, and must be positive")
    if len(delays) > MOST_BANDS:
        raise ValueError(
            f"flows have {len(delays) - 1} different delays; tc's prio has room for {MOST_BANDS - 1}"
        )
    bands = []
    for extra_us in delays:
        delay_us = netem["delay_us"] + extra_us
        longest_us = delay_us + TABLE_SIGMAS * netem["jitter_us"] + netem["slot.max_us"]
        limit = netem_limit(rate_bps, longest_us) * (2 if netem["duplicate"] else 1)
        bands.append(netem | {"delay_us": delay_us, "limit_packets": min(limit, MOST_PACKETS)})
    filters = [Filter(_ask_match(flow), delays.index(flow["delay_us"])) for flow in flows]
    return DelayLine(tuple(bands), tuple(filters))


def _ask_match(flow: Json) -> Values:
    match = {
        attribute.name: flow[attribute.name] for attribute in MATCH if flow.get(attribute.name) is not None
    }
    if not match:
        raise ValueError(f"a flow needs one of {', '.join(attribute.name for attribute in MATCH)}")
    if "protocol" not in match and match.keys() & {"src_port", "dst_port"}:
        raise ValueError("src_port and dst_port of a flow need its protocol")
    networks = {name: ip_network(match[name]) for name in ("src", "dst") if name in match}
    if len({network.version for network in networks.values()}) > 1:
        raise ValueError(f"src {match['src']} and dst {match['dst']} of a flow are of different families")
    for name, network in networks.items():  # as flower shows them
        match[name] = str(network.network_address if network.prefixlen == network.max_prefixlen else network)
    return match


def ask_changes(asked: Json, changes: Sequence[Json]) -> list[Direction]:
    """The direction at first and after each of `changes`, all of which one set of qdiscs can be.

    A change names what differs from before; another loss model takes the place of the one before. ValueError
    names what cannot change in place.
    """
    states = [dict(asked)]
    for change in changes:
        named = {name: value for name, value in change.items() if value is not None and name != "at_ns"}
        before = states[-1]
        if named.keys() & LOSS_MODELS.keys():
            before = {name: value for name, value in before.items() if name not in LOSS_MODELS}
        states.append(before | named)
    line = any(ask(state).line for state in states)
    first, *later = directions = [ask(state, line) for state in states]
    for i, direction in enumerate(later):
        for what, one, other in _shape(first, direction):
            if one != other:
                raise ValueError(f"changes[{i}]: {what} cannot change from {one} to {other} within a run")
    most = max((band["limit_packets"] for d in directions if d.line for band in d.line.bands), default=0)
    return [
        replace(
            d, line=d.line and replace(d.line, bands=tuple(b | {"limit_packets": most} for b in d.line.bands))
        )
        for d in directions
    ]


def _shape(one: Direction, other: Direction) -> Iterator[tuple[str, Any, Any]]:
    """What no command changes in place: name and value in both directions."""
    kind, other_kind = (d.bottleneck and d.bottleneck.kind for d in (one, other))
    yield ("the kind of the queue", kind, other_kind)
    if one.bottleneck and other.bottleneck and kind == other_kind:
        for attribute in KINDS[one.bottleneck.kind].attributes:
            if not attribute.changeable:
                name = attribute.name
                yield (f"the queue's {name}", one.bottleneck.queue[name], other.bottleneck.queue[name])
    if one.line and other.line:
        yield ("the distribution", one.line.bands[0]["distribution"], other.line.bands[0]["distribution"])
        yield ("the flows", one.line.filters, other.line.filters)
        yield ("the number of the flows' delays", len(one.line.bands), len(other.line.bands))


def warnings(asked: Direction, offloads: Mapping[str, Sequence[str]]) -> list[str]:
    """What is allowed and likely not meant; `offloads` are those that are on, by device."""
    said = []
    counted = asked.bottleneck and "limit_packets" in asked.bottleneck.queue
    netem = asked.line.bands[0] if asked.line else {}
    hurt = [name for name in PER_PACKET if any(_under(netem, name))] + ["limit_packets"] * bool(counted)
    on = [f"{', '.join(names)} of {device}" for device, names in offloads.items() if names]
    if hurt and on:
        said.append(
            f"{' and '.join(on)} are on: {', '.join(hurt)} count super-packets of up to 64 kB, not packets; "
            "switch them off on all hosts"
        )
    if asked.bottleneck:
        queue, kind, rate_bps = asked.bottleneck.queue, asked.bottleneck.kind, asked.bottleneck.rate_bps
        limit_bytes = queue.get("limit_bytes") or FULL_PACKET_BYTES
        if limit_bytes < FULL_PACKET_BYTES:
            said.append(f"limit_bytes {limit_bytes} of {kind} holds no packet of {FULL_PACKET_BYTES} bytes")
        full_us = queue.get("limit_packets", math.inf) * FULL_PACKET_BYTES * 8e6 / rate_bps
        if full_us < queue.get("target_us", 0):
            said.append(
                f"limit_packets {queue['limit_packets']} of {kind} is full after {full_us:.0f} us, "
                f"before its target_us {queue['target_us']}"
            )
    if netem.get("jitter_us"):
        if not netem["netem_rate_bps"]:
            said.append("jitter_us reorders packets; keep_order sends each after the one before it")
        if netem["jitter_us"] > netem["delay_us"]:
            said.append(
                f"jitter_us {netem['jitter_us']} exceeds delay_us {netem['delay_us']}: delays are cut at 0"
            )
    return said


def measured(direction: Direction) -> dict[str, Any] | None:
    """A direction in the shape of the data model; what a netem may do and does not is left out.

    None where there is no path.
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
        shape |= {"delay_us": 0} | _nested(said)
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
    return shape


def report(devices: Devices, found: Found) -> dict[str, Any] | None:
    """`measured` of what the kernel holds, and what stands in the place of a stage that is none of ours."""
    shape = measured(found.direction)
    strange: dict[str, Any] = {}
    if found.direction.line is None and found.netem:
        strange[devices.egress] = found.egress_kind
    if found.redirect and found.direction.bottleneck is None:
        strange[devices.ifb] = f"no bottleneck, {found.ifb}"
    if found.direction.bottleneck and found.redirect != devices.ifb:
        strange[devices.ingress] = "not redirected"
    return (shape or {}) | {"unknown": (shape or {}).get("unknown", {}) | strange} if strange else shape


# Parsing


def parse(  # noqa: PLR0917
    devices: Devices,
    links: Sequence[Json],
    qdiscs: Sequence[Json],
    filters: Sequence[Json],
    classes: bytes,
    flow_filters: Sequence[Json] = (),
) -> Found:
    """State of a direction.

    From `ip -j -d link`, `tc -j -d qdisc`, `tc -j filter` of the ingress hook, the ifb's classes over
    netlink, and `tc -j filter` of the egress device. ValueError names what belongs to someone else and
    stands in the way.
    """
    ingress, egress, ifb = devices
    link = next((link for link in links if link["ifname"] == ifb), None)
    if link and link.get("linkinfo", {}).get("info_kind") != "ifb":
        raise ValueError(f"{ifb} exists and is no ifb device")
    egress_root = _root(qdiscs, egress)
    ifb_root = _root(qdiscs, ifb)
    return Found(
        direction=Direction(parse_bottleneck(qdiscs, classes, ifb), parse_line(qdiscs, flow_filters, egress)),
        redirect=parse_redirect(filters, ingress, ifb),
        hooked=any(qdisc["dev"] == ingress and qdisc["kind"] in {"clsact", "ingress"} for qdisc in qdiscs),
        ifb="absent" if link is None else "up" if "UP" in link["flags"] else "down",
        ifb_handle=ifb_root["handle"] if ifb_root else None,
        egress_kind=egress_root["kind"] if egress_root else None,
        egress_handle=egress_root["handle"] if egress_root else None,
        netem=any(qdisc["dev"] == egress and qdisc["kind"] == "netem" for qdisc in qdiscs),
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
    (leaf,) = leaves
    known = leaf["kind"] in QUEUES and leaf["parent"] == f"{root['handle']}1"
    if not known or int(root["options"]["default"], 16) != 1:
        return None
    return Bottleneck(*found[0], leaf["kind"], read(leaf["kind"], leaf["options"]))


def parse_line(qdiscs: Sequence[Json], filters: Sequence[Json], egress: str) -> DelayLine | None:
    """The delay line on `egress`, or None when its qdiscs are something else."""
    root = _root(qdiscs, egress)
    if not root or root["kind"] not in {"netem", "prio"}:
        return None
    netems = [root]
    if root["kind"] == "prio":
        children = {
            qdisc["parent"]: qdisc for qdisc in qdiscs if qdisc["dev"] == egress and "parent" in qdisc
        }
        netems = [children.get(_class(root["handle"], i), {}) for i in range(root["options"]["bands"])]
        if any(root["options"]["priomap"]) or any(netem.get("kind") != "netem" for netem in netems):
            return None
    code = _major(root["handle"]) >> 4
    distribution = (
        DISTRIBUTIONS[code] if code < len(DISTRIBUTIONS) else f"unknown, of handle {root['handle']}"
    )
    bands = tuple(read("netem", netem["options"]) | {"distribution": distribution} for netem in netems)
    entries = sorted((entry for entry in filters if "options" in entry), key=lambda entry: entry["pref"])
    found = [_parse_filter(entry, root["handle"]) for entry in entries]
    known = tuple(item for item in found if item)
    return DelayLine(bands, known) if len(known) == len(found) else None


def _parse_filter(entry: Json, handle: str) -> Filter | None:
    shown, options = dict(entry["options"].get("keys", {})), entry["options"]
    shown.pop("eth_type", None)
    match = {a.name: shown.pop(a.key) for a in MATCH if a.key in shown}
    major, _, band = options.get("classid", "").partition(":")
    if entry["kind"] != "flower" or shown or "actions" in options or f"{major}:" != handle:
        return None
    return Filter(match, int(band, 16) - 1)


def _major(handle: str) -> int:
    return int(handle.rstrip(":") or "0", 16)


def _class(handle: str, band: int) -> str:
    return f"{handle}{band + 1:x}"


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


def mismatches(devices: Devices, asked: Direction, found: Found) -> Differences:
    """Name of a part to (asked, found); empty exactly when there is nothing to do."""
    wrong = bottleneck_differences(asked, found.direction) | line_differences(asked, found.direction)
    if asked.line is None and found.netem:
        wrong["netem"] = (None, f"{found.egress_kind} on {devices.egress}")
    target = devices.ifb if asked.bottleneck else None
    if found.redirect != target:
        wrong["redirect"] = (target, found.redirect)
    ifb = "up" if asked.bottleneck else "absent"
    if found.ifb != ifb:
        wrong[devices.ifb] = (ifb, found.ifb)
    return wrong


def bottleneck_differences(asked: Direction, found: Direction) -> Differences:
    """Attributes of the bottleneck asked that differ by more than is lost in reading back."""
    one, other = asked.bottleneck, found.bottleneck
    if one is None:
        return {}
    if other is None or one.kind != other.kind:
        return {"bottleneck": (f"htb over {one.kind}", other and f"htb over {other.kind}")}
    wrong = {
        name: (getattr(one, name), getattr(other, name))
        for name, resolution in HTB_RESOLUTION.items()
        if not close(getattr(one, name), getattr(other, name), resolution)
    } | differences(one.kind, one.queue, other.queue)
    return {f"bottleneck {name}": pair for name, pair in wrong.items()}


def line_differences(asked: Direction, found: Direction) -> Differences:
    """Attributes of the delay line asked that differ by more than is lost in reading back."""
    one, other = asked.line, found.line
    if one is None:
        return {}
    if other is None or len(one.bands) != len(other.bands):
        return {"netem": (f"{len(one.bands)} netem", other and f"{len(other.bands)} netem")}
    wrong: Differences = {}
    for i, (band, held) in enumerate(zip(one.bands, other.bands)):  # noqa: B905  Python 3.9
        of_flow = f" of class {i + 1}" if i else ""
        wrong |= {f"netem {name}{of_flow}": pair for name, pair in differences("netem", band, held).items()}
    if one.bands[0]["distribution"] != other.bands[0]["distribution"]:
        wrong["netem distribution"] = (one.bands[0]["distribution"], other.bands[0]["distribution"])
    if one.filters != other.filters:
        wrong["flows"] = (one.filters, other.filters)
    return wrong


# Rendering


def handles(asked: Direction, found: Found) -> tuple[str, str]:
    """Handles that the ifb's root and the egress' root have once `plan` is carried out.

    A stage that is replaced gets one that it has not got: `replace` under the same one keeps what it does not
    name. Distributions are never dumped: the handle tells them apart.
    """
    ifb, egress = found.ifb_handle or "", found.egress_handle or ""
    if asked.bottleneck and bottleneck_differences(asked, found.direction):
        ifb = "2:" if ifb == "1:" else "1:"
    if asked.line and line_differences(asked, found.direction):
        first = DISTRIBUTIONS.index(asked.line.bands[0]["distribution"]) * 16 + 1
        egress = f"{first + 1:x}:" if _major(egress) == first else f"{first:x}:"
    return ifb, egress


def duplicates(direction: Direction) -> bool:
    """Whether the direction has a netem that duplicates packets."""
    return direction.line is not None and bool(direction.line.bands[0]["duplicate"])


def plan(devices: Devices, asked: Direction, found: Found) -> list[Command]:
    """Commands from `found` to `asked`, none when they agree; traffic is redirected last, released first."""
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
        # A kernel refuses a netem that duplicates beside another, also while one takes the other's place.
        if found.netem and (duplicates(asked) or found.direction.line is None or duplicates(found.direction)):
            commands.append(f"tc qdisc del dev {egress} root".split())
        commands += render_line(asked.line, egress, egress_handle)
    if asked.line is None and found.netem:
        commands.append(f"tc qdisc del dev {egress} root".split())
    if asked.bottleneck and found.redirect != ifb:
        if not found.hooked:
            commands.append(f"tc qdisc add dev {ingress} clsact".split())
        match = f"tc filter add dev {ingress} ingress pref {FILTER_PREF} matchall"
        commands.append(f"{match} action mirred egress redirect dev {ifb}".split())
    return commands


def render_bottleneck(bottleneck: Bottleneck, ifb: str, handle: str) -> list[Command]:
    """A fresh htb of one class over its queue."""
    return [
        f"tc qdisc replace dev {ifb} root handle {handle} htb default 1".split(),
        ["tc", "class", "add", *_htb_class(bottleneck, ifb, handle)],
        f"tc qdisc add dev {ifb} parent {handle}1 handle 10:".split()
        + words(bottleneck.kind, bottleneck.queue),
    ]


def _htb_class(bottleneck: Bottleneck, ifb: str, handle: str) -> list[str]:
    """A quantum divides rates among classes; this only silences a warning."""
    burst = burst_bytes(bottleneck.rate_bps, bottleneck.burst_ticks)
    rate = f"rate {bottleneck.rate_bps}bit ceil {bottleneck.rate_bps}bit burst {burst} cburst {burst}"
    place = f"dev {ifb} parent {handle} classid {handle}1"
    return f"{place} htb {rate} quantum {FULL_PACKET_BYTES}".split()


def render_line(line: DelayLine, egress: str, handle: str) -> list[Command]:
    """A fresh netem, or a fresh prio over netems with the filters that choose among them."""
    root = f"tc qdisc replace dev {egress} root handle {handle}".split()
    if len(line.bands) == 1:
        return [root + words("netem", line.bands[0])]
    first_band_only = " ".join("0" * 16)
    commands = [root + f"prio bands {len(line.bands)} priomap {first_band_only}".split()]
    for i, band in enumerate(line.bands):
        own = f"{_major(handle) + 0x100 * (i + 1):x}:"
        place = f"tc qdisc add dev {egress} parent {_class(handle, i)} handle {own}"
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
        commands.append([*place.split(), *said, "classid", _class(handle, item.band)])
    return commands


def render_change(devices: Devices, asked: Direction, roots: tuple[str, str]) -> list[Command]:
    """Commands that change a direction in place to `asked`, with every attribute explicit; no packet is lost.

    `roots` are the handles of the direction as it stands.
    """
    commands: list[Command] = []
    if asked.bottleneck:
        handle, queue = roots[0], words(asked.bottleneck.kind, asked.bottleneck.queue, change=True)
        commands.append(["tc", "class", "change", *_htb_class(asked.bottleneck, devices.ifb, handle)])
        commands.append(f"tc qdisc change dev {devices.ifb} parent {handle}1 handle 10:".split() + queue)
    if asked.line:
        one = len(asked.line.bands) == 1
        for i, band in enumerate(asked.line.bands):
            parent = "root" if one else f"parent {_class(roots[1], i)}"
            commands.append(
                f"tc qdisc change dev {devices.egress} {parent}".split() + words("netem", band, change=True)
            )
    return commands


# Refusing


def probes(asked: Direction, found: Found) -> dict[str, list[Command]]:
    """Commands that fail in an empty network namespace of a host which lacks what is asked, by stage.

    What is found as asked needs no probe.
    """
    stages: dict[str, list[Command]] = {}
    if asked.bottleneck and bottleneck_differences(asked, found.direction):
        stages["bottleneck"] = render_bottleneck(asked.bottleneck, "lo", "1:")
    if asked.bottleneck and found.redirect is None:
        redirect = "tc filter add dev lo ingress matchall action mirred egress redirect dev lo"
        hook = ["tc", "qdisc", "add", "dev", "lo", "clsact"]
        stages["redirection"] = [["ip", "link", "add", "type", "ifb"], hook, redirect.split()]
    if asked.line and line_differences(asked, found.direction):
        stages["delay line"] = render_line(asked.line, "lo", handles(asked, found)[1])
    return stages


def probe_differences(asked: Direction, qdiscs: Sequence[Json]) -> Differences:
    """What a delay line made on lo by a probe has not got: old kernels ignore attributes they do not know."""
    line = parse_line(qdiscs, [], "lo")
    if asked.line is None or line is None:
        return {}
    return line_differences(Direction(None, replace(asked.line, filters=())), Direction(None, line))
