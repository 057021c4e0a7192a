"""From the parameters of the module to the requested direction; impossible requests raise ValueError."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

from .direction import Bottleneck, DelayLine, Direction, Filter, burst_ticks, ticks_of
from .kinds import (
    DISTRIBUTIONS,
    FULL_PACKET_BYTES,
    KEEP_ORDER_BPS,
    KINDS,
    LOSS_MODELS,
    MATCH,
    QUEUES,
    RATE_RESOLUTION_BPS,
    Json,
    Values,
    complete,
    flattened,
    under,
)
from .police import Policer

SMALLEST_PACKET_BYTES = 64
BURST_US = 1000
LINE_RATE_BPS = 100_000_000_000  # assumed without a bottleneck before the delay line
LIMIT_MARGIN_PACKETS = 1000
MOST_PACKETS = 2**31 - 1
MOST_BANDS = 16  # TCQ_PRIO_BANDS
TABLE_SIGMAS = 4  # a distribution's table holds 16-bit multiples of 1/8192 of the jitter

PASSIVE = ("distribution", "netem_rate_bps", "seed")  # attributes without an effect of their own
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


def netem_limit(rate_bps: int | None, longest_us: float) -> int:
    """Limit of a delay line in packets: the smallest packets at the full rate, and a margin."""
    in_flight = (rate_bps or LINE_RATE_BPS) / 8 * longest_us / 1e6 / SMALLEST_PACKET_BYTES
    return min(math.ceil(in_flight) + LIMIT_MARGIN_PACKETS, MOST_PACKETS)


def ask(asked: Json, line: bool = False) -> Direction:
    """The direction that the module's parameters describe; ValueError if it is impossible.

    A delay line without effect is left out, unless `line` is set.
    """
    outage = asked.get("outage")
    rate_bps, queue = outage["rate_bps"] if outage else asked.get("rate_bps"), asked.get("queue")
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
        if asked.get("burst_bytes") is not None:
            ticks = ticks_of(rate_bps, max(FULL_PACKET_BYTES, asked["burst_bytes"]))
        least_bytes = 0
        if outage:  # not even a byte may have been saved up
            ticks, least_bytes = ticks_of(rate_bps, 1), outage["packet_bytes"]
        values = _ask_queue(queue["kind"], {k: v for k, v in queue.items() if k != "kind"}, rate_bps)
        bottleneck = Bottleneck(rate_bps, rate_bps, ticks, ticks, queue["kind"], values, least_bytes)
    netem = _ask_netem(asked)
    flows = asked.get("flows") or []
    idle = complete("netem", {name: netem[name] for name in ("limit_packets", *PASSIVE)})
    policer = _ask_policer(asked.get("policer"))
    if not (line or flows or netem != idle):
        return Direction(bottleneck, None, policer)
    return Direction(bottleneck, _ask_line(netem, flows, rate_bps), policer)


def _ask_policer(asked: Json | None) -> Policer | None:
    if not asked:
        return None
    rate_bps, burst_bytes = asked["rate_bps"], asked["burst_bytes"]
    if rate_bps < RATE_RESOLUTION_BPS:
        raise ValueError(f"policer: rate_bps {rate_bps} is less than one byte per second")
    if burst_bytes < 1:
        raise ValueError(f"policer: burst_bytes {burst_bytes} passes nothing")
    return Policer(rate_bps, ticks_of(rate_bps, burst_bytes))


def _ask_queue(kind: str, given: Json, rate_bps: int) -> Values:
    if kind not in QUEUES:
        raise ValueError(f"queue {kind} is not one of {', '.join(QUEUES)}")
    values = complete(kind, given)
    for name, value in values.items():
        if name.startswith("limit_") and value is not None and value < 1:
            raise ValueError(f"{name} {value} leaves no room in the queue")
    _check_ranges(values)
    if kind == "red":
        # Floyd's advice: max is three times min; the burst that tc-red(8) recommends. The rest is for bursts.
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
    flat = flattened({name: value for name, value in asked.items() if value is not None})
    given = {name: flat[name] for name in names if flat.get(name) is not None}
    if given.get("delay_us", 0) > 0:
        given["delay_us"] = max(0, given["delay_us"] - (asked.get("trim_us") or 0))
    if "loss_state.p13" in given:  # tc's defaults
        given = {"loss_state.p31": 1 - given["loss_state.p13"], "loss_state.p23": 1.0} | given
    if "loss_gemodel.p" in given:
        given = {"loss_gemodel.r": 1 - given["loss_gemodel.p"], "loss_gemodel.loss_bad": 1.0} | given
    values = complete("netem", given | {"limit_packets": 0})
    _check_ranges(values)
    models = [name for name in LOSS_MODELS if any(under(values, name))]
    if len(models) > 1:
        raise ValueError(f"{' and '.join(models)} are models of the same loss: give one")
    for name, other in NEEDS.items():
        if any(under(values, name)) and not values[other]:
            raise ValueError(f"{name} has no effect without {other}")
    if values["distribution"] not in DISTRIBUTIONS:
        raise ValueError(
            f"distribution {values['distribution']} is not one of {', '.join(DISTRIBUTIONS[1:])}"
        )
    if values["reorder"]:
        values["reorder_gap"] = values["reorder_gap"] or 1  # tc's default
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
    for name, network in networks.items():  # in the form that flower shows
        match[name] = str(network.network_address if network.prefixlen == network.max_prefixlen else network)
    return match


def ask_changes(asked: Json, changes: Sequence[Json]) -> list[Direction]:
    """The direction at first and after each of `changes`, all within the same qdiscs.

    A change has the options that differ from the state before; another loss model replaces the previous one,
    and a rate ends an outage.
    ValueError names options that cannot change in place.
    """
    states = [dict(asked)]
    for change in changes:
        named = {name: value for name, value in change.items() if value is not None and name != "at_ns"}
        before = states[-1]
        if named.keys() & LOSS_MODELS.keys():
            before = {name: value for name, value in before.items() if name not in LOSS_MODELS}
        if "rate_bps" in named:  # which ends an outage
            before = {name: value for name, value in before.items() if name != "outage"}
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
    """Differences that no command can make in place: name, and value in both directions."""
    kind, other_kind = (d.bottleneck and d.bottleneck.kind for d in (one, other))
    yield ("the kind of the queue", kind, other_kind)
    yield ("whether it has a policer", one.policer is not None, other.policer is not None)
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
    """Allowed settings that are likely not meant; `offloads` are the active ones, by device."""
    said = []
    counted = asked.bottleneck and "limit_packets" in asked.bottleneck.queue
    netem = asked.line.bands[0] if asked.line else {}
    hurt = [name for name in PER_PACKET if any(under(netem, name))] + ["limit_packets"] * bool(counted)
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
