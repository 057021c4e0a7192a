"""The options of each kind of qdisc in one table, for parsing, comparing and making commands.

Sources: net/sched/sch_netem.c, include/uapi/linux/pkt_sched.h, and tc/ of iproute2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

Json = Mapping[str, Any]
Command = list[str]
Values = dict[str, Any]  # attributes of a qdisc, by names in KINDS
Differences = dict[str, tuple[Any, Any]]  # by name: requested, found

FULL_PACKET_BYTES = 1514

# A netem with a rate keeps packets in order. With this rate, packets take no time.
KEEP_ORDER_BPS = 80 * 10**12

# tc prints floats as %g; the kernel stores bytes per second and 32-bit probabilities.
TOLERANCE = 1e-5
RATE_RESOLUTION_BPS = 8


class Unit(NamedTuple):
    """A kind of value: its type, its forms in commands and in `tc -j`, and the precision of reading back."""

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
# More digits than the kernel stores.
SHARE = Unit("float", lambda share: [f"{share * 100:.12g}%"], float, 2**-32)
PROBABILITY = Unit("float", lambda share: [f"{share:.12g}"], float, 2**-32)
# netem shows seconds; tc cuts to ticks when setting and to microseconds when showing: 12345 reads 12344.
TIME = Unit("int", _us, lambda seconds: round(seconds * 1e6, 3), 1)
SHORT_TIME = Unit("int", _us, resolution=2)  # codel counts in 1024 ns
JIFFIES = Unit("int", _us, resolution=10_000)


class Attribute(NamedTuple):
    """One attribute of a qdisc.

    `word` precedes its value in a command; without one the value follows the value of the previous attribute.
    `key` is its place in `tc -j`, with dots for nested objects; attributes of one such object are set
    together or not at all. Without a key it cannot be read back and is not compared.
    """

    name: str
    word: str
    key: str
    unit: Unit
    default: Any = None  # None: the kernel's default, which is not compared; ...: required
    changeable: bool = True  # by `tc qdisc change`

    @property
    def group(self) -> str:
        """The name of the group that is set together."""
        return self.key.partition(".")[0] or self.name


class Kind(NamedTuple):
    """A kind of qdisc: its options, and what tc shows for one without options."""

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
            A("distribution", "distribution", "", WORD),  # not shown by tc: the handle encodes it
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
    # tc computes `ewma` from burst, min and avpkt, and Scell_log from the bandwidth.
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
DISTRIBUTIONS = (None, "normal", "pareto", "paretonormal")  # in the order of their codes in handles

ZERO = {"int": 0, "float": 0.0, "bool": False, "str": ""}
COMPUTED = {"netem": {"limit_packets", "netem_rate_bps"}, "red": {"bandwidth_bps"}}  # not options

# What a filter can match, as flower takes it and as it shows it.
MATCH = (
    A("protocol", "ip_proto", "ip_proto", WORD),
    A("src", "src_ip", "src_ip", WORD),
    A("dst", "dst_ip", "dst_ip", WORD),
    A("src_port", "src_port", "src_port", COUNT),
    A("dst_port", "dst_port", "dst_port", COUNT),
)


def arguments(kind: str) -> dict[str, Any]:
    """Ansible's argument specification of a qdisc."""
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
    """All attributes of a qdisc, with defaults; ValueError names unknown ones."""
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
    """Attributes of a qdisc from `options` of `tc -j`; unknown ones are under `unknown.`."""
    shown = flattened(options)
    values: Values = {}
    for attribute in KINDS[kind].attributes:
        if attribute.key:
            # tc does not show values that are zero or off.
            nothing = None if attribute.default is None else ZERO[attribute.unit.type]
            found = shown.pop(attribute.key, None)
            values[attribute.name] = nothing if found is None else attribute.unit.read(found)
    neutral = KINDS[kind].neutral
    strange = {key: value for key, value in shown.items() if value and neutral.get(key) not in (..., value)}
    return values | {f"unknown.{key}": value for key, value in strange.items()}


def words(kind: str, values: Values, change: bool = False) -> list[str]:
    """A qdisc's options in a command. A change in place names all of them, because others would stay."""
    model = next((shown for name, shown in LOSS_MODELS.items() if any(under(values, name))), "loss-random")
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


def under(values: Values, name: str) -> Iterator[Any]:
    """Values of the attribute `name` and of those nested in it."""
    return (value for key, value in values.items() if key == name or key.startswith(f"{name}."))


def flattened(nested: Json) -> Values:
    """`{"delay": {"jitter": 1}}` as `{"delay.jitter": 1}`."""
    flat: Values = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": inside for inner, inside in value.items()}
        else:
            flat[key] = value
    return flat


def unflattened(flat: Json) -> Values:
    """The inverse of `flattened`."""
    nested: Values = {}
    for key, value in flat.items():
        outer, dot, inner = key.partition(".")
        if dot:
            nested.setdefault(outer, {})[inner] = value
        else:
            nested[key] = value
    return nested


def close(asked: float, found: float, resolution: float = 0) -> bool:
    """Equal, except for the kernel's and iproute2's rounding."""
    return abs(asked - found) <= max(TOLERANCE * max(abs(asked), abs(found)), resolution)


def differences(kind: str, asked: Values, found: Values) -> Differences:
    """Requested attributes that differ by more than the precision of reading back."""
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
