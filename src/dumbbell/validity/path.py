"""The path was as requested: settings, changes, idle RTT, rate and drops."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from itertools import pairwise

import polars as pl

from dumbbell.chance import median_error
from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, close, fact, same
from dumbbell.plan import Conditions, PingAction, PlannedPath, Validity, Way, change_name, rate_name
from dumbbell.run.content import (
    IN_MEASUREMENT,
    dig,
    ping_duplicates,
    ping_rtts_ns,
)
from dumbbell.run.of_path import (
    TC_ROUNDING_US,
    agrees,
    blast_rate_bps,
    conditions_held,
    dropped_share,
    has_delay_line,
    holds,
    most_at_once,
    most_lost,
    probe_ns,
    served_bps,
)
from dumbbell.run.record import read_json
from dumbbell.units import human
from dumbbell.validity import outages, slots

LATE_NS = 10_000_000  # by which a router may send late, and then at once, what it held back


def checks(of: Asked, path: PlannedPath) -> Iterator[Check]:
    """All checks of the emulated path, on each router."""
    validity = of.point.validity
    routers = of.run.routers
    if not routers:
        missing = "no host of the plan is a router"
        yield same("path", "path", "a router", None, what="emulated path", missing=missing)
    for host in routers:
        for name, asked in path.ways:
            wanted = asked.model_dump(exclude={"changes"})
            found = dig(of.run.states[host], "path", name)
            if dig(found, "delay_us") is not None:  # the path's own delay is part of what was requested
                trim_us = dig(of.run.states[host], "path", "trim_us") or 0
                delay_us = found["delay_us"] + trim_us
                if abs(delay_us - asked.delay_us) <= TC_ROUNDING_US:
                    delay_us = asked.delay_us
                found = found | {"delay_us": delay_us}
            if found is not None and agrees(wanted, found):
                found = wanted  # hides the rounding of tc's floats
            yield same("path", f"{host} {name}", wanted, found, what="emulated path")
            yield from _changes(of, host, name, path)
        if any(way.changes for _, way in path.ways):
            yield from _restored(of, host)
    yield from _idle_rtt(of, path, validity)
    yield from _own_delays(of, path, validity)
    yield from _rate(of, path, validity)
    for host in routers:
        for name, _ in path.ways:
            yield from _policed(of, host, name, path)
            yield from slots.checks(of, host, name, path)
            yield from outages.checks(of, host, name, path)
            yield from _unexpected_drops(of, host, name, path)


def _changes(of: Asked, host: str, name: Way, path: PlannedPath) -> Iterator[Check]:
    """Each change was made in time, and the kernel had its conditions until the next one."""
    changes, made_ns = path.way(name).changes or [], path.way(name).made_ns
    lasts_ns = [*(after - at for at, after in pairwise(made_ns)), None]
    for number, (asked, until_ns) in enumerate(zip(changes, lasts_ns, strict=False), start=1):
        subject = f"{host} {name} from {human(asked.at_ns, 'ns')}"
        named = {"host": host, "phase": "measurement", "name": change_name(name, number)}
        event = of.run.event("path_changed", **named) or {}
        late_ns = event["error_ns"] + event["took_ns"] if event.get("ok") else None
        yield close(
            "path change",
            subject,
            0,
            late_ns,
            tolerance=of.point.validity.start_error_ns,
            unit="ns",
            what="time after which the path was as changed",
            missing=event.get("reason") or "the agent says nothing of it",
        )
        left_out = {"distribution", "outage"}  # which the kernel does not show
        held, wanted = None, asked.model_dump(include=set(Conditions.model_fields) - left_out)
        if asked.outage:
            wanted |= {"rate_bps": asked.outage.rate_bps} | ({"burst_bytes": 1} if asked.burst_bytes else {})
        if late_ns is not None:
            planned = event["planned_unix_ns"]
            until = None if until_ns is None else planned + until_ns
            held = conditions_held(of.run, of.tables, host, name, (planned + late_ns, until))
        unlike = [conditions for conditions in held or [] if not holds(wanted, conditions)]
        yield same(
            "path",
            subject,
            wanted,
            (unlike or [wanted])[0] if held else None,
            what="emulated path",
            missing="the router's queues were not sampled",
        )


def _restored(of: Asked, host: str) -> Iterator[Check]:
    """A router undid its changes after the end, once the last socket of the flows was destroyed."""
    rows = of.tables["tcp_info"].filter(IN_MEASUREMENT)
    ended_ns = rows.filter("final")["t_ns"].max() if "final" in rows else None
    least = max(of.measurement.duration_ns, ended_ns or 0)
    event = of.run.event("path_restored", host=host, phase="measurement")
    t0 = of.run.t0_unix_ns("measurement")
    found = None if event is None or t0 is None else event["unix_ns"] - t0
    reason = ""
    if found is None:
        reason = "when the path was restored is not known: the agent says nothing of it"
    elif found < least:
        reason = f"the path was restored at {human(found, 'ns')}, while flows may still have met it"
        reason += f": asked {human(least, 'ns')} or later"
    yield fact("path restored", host, least, found, unit="ns", ok=not reason, reason=reason)


def _idle_rtt(of: Asked, path: PlannedPath, validity: Validity) -> Iterator[Check]:
    """The fastest echo measures the path; the median is longer if hosts waited for a core.

    On a path with jitter the median measures the path, and may be off by chance.
    """
    for host, ping in of.run.pings("calibration"):
        if not any(way.duplicate for _, way in path.ways):
            duplicates = ping_duplicates(of.run.raw(host, "calibration", f"ping-{ping.name}.txt"))
            yield same("idle RTT, duplicates", ping.name, 0, duplicates, what="duplicate echo replies")
        quickest, median, count, missing = _echoes(of, host, ping, path)
        yield close(
            "idle RTT",
            ping.name,
            path.idle_rtt_ns,
            median if path.jitters else quickest,
            tolerance=validity.rtt_tolerance * path.rtt_ns + _by_chance_ns(path, count),
            unit="ns",
            what="idle RTT",
            missing=missing,
        )
        if not path.jitters:
            yield close(
                "idle RTT, waits",
                ping.name,
                0,
                None if median is None or quickest is None else median - quickest,
                tolerance=validity.rtt_wait_ns,
                unit="ns",
                what="the median echo's wait beyond the quickest",
                missing=missing,
            )


def _echoes(
    of: Asked, host: str, ping: PingAction, path: PlannedPath
) -> tuple[float | None, float | None, int, str]:
    """The fastest and the median RTT, or None; the number of echoes, also in words."""
    rtts = ping_rtts_ns(of.run.raw(host, "calibration", f"ping-{ping.name}.txt"))
    least = max(1, ping.count - 1 - most_lost([path.forward, path.reverse], ping.count - 1))
    missing = f"{len(rtts)} of {ping.count - 1} echo replies, of which {least} had to come"
    if len(rtts) < least:
        return None, None, len(rtts), missing
    return min(rtts), round(statistics.median(rtts)), len(rtts), missing


def _by_chance_ns(path: PlannedPath, count: int) -> float:
    """How far jitter may move the median of so many echoes."""
    return median_error(1000 * path.jitter_us, count) if path.jitter_us and count else 0


def _own_delays(of: Asked, path: PlannedPath, validity: Validity) -> Iterator[Check]:
    """The RTT of the pair, and the additional delay of packets to the flow's port."""
    pings = {ping.name: _echoes(of, host, ping, path) for host, ping in of.run.pings("calibration")}
    for flow in of.measurement.flows:
        for delay in flow.own_delays:
            asked_ns = path.idle_rtt_ns + 1000 * delay.delay_us
            quickest, median, count, _ = pings.get(f"{flow.src_host}-{flow.dst_host}", (None, None, 0, ""))
            idle_ns = median if path.jitters else quickest
            delayed_ns, plain_ns = (
                probe_ns(of.run, flow, delay.protocol, probe, median=path.jitters)
                for probe in ("delayed", "plain")
            )
            measured_ns, missing = None, "its pair has none"
            if delayed_ns is None or plain_ns is None:
                missing = "too few packets of the probes of its delay came through"
            elif idle_ns is not None:
                measured_ns = idle_ns + delayed_ns - plain_ns
            yield close(
                "idle RTT",
                f"{flow.name} {delay.protocol}",
                asked_ns,
                measured_ns,
                tolerance=validity.rtt_tolerance * asked_ns
                + math.sqrt(3) * _by_chance_ns(path, count),  # of 3 medians
                unit="ns",
                what="idle RTT",
                missing=missing,
            )


def _rate(of: Asked, path: PlannedPath, validity: Validity) -> Iterator[Check]:
    """The rate at which the bottleneck serves its queue, and of arrivals, which a waiting receiver blurs."""
    for flow in of.point.phase("calibration").flows:
        if flow.name != rate_name(flow.direction):
            continue
        asked_bps = path.rate_bps(flow.direction)
        sent, arrived = (
            read_json(of.run.raw(host, "calibration", f"udp-{flow.name}-{side}.json"))
            for host, side in ((flow.src_host, "sender"), (flow.dst_host, "receiver"))
        )
        pair = f"{flow.src_host}-{flow.dst_host}"
        arriving_bps = path.way(flow.direction).passing_bps(flow.duration_ns)
        yield close(
            "rate",
            pair,
            asked_bps,
            served_bps(of.tables["qdisc"], path, flow),
            tolerance=validity.rate_tolerance * asked_bps,
            unit="bps",
            what="rate of the bottleneck",
            missing="no router was seen to have a queue while the calibration filled it",
        )
        yield close(
            "rate, arriving",
            pair,
            arriving_bps,
            blast_rate_bps(path, flow, sent, arrived),
            tolerance=validity.arrival_tolerance * arriving_bps,
            unit="bps",
            what="rate at which the path's packets arrive",
            missing="the ends of the calibration's flow left no counts",
        )


def _policed(of: Asked, host: str, name: Way, path: PlannedPath) -> Iterator[Check]:
    """In every time between two samples no more passed than the policer's bucket allows.

    The delay line behind it counts what passed, if all its delays are the same.
    """
    about, way = dig(of.run.states[host], "path"), path.way(name)
    device = dig(about, "devices", name, "delay_line")
    states = way.states
    steady = len({state.delay_us for _, state in states}) == 1 and not way.flows
    if any(state.jitter_us or state.reorder or state.duplicate for _, state in states) or not steady:
        return
    if not has_delay_line(way, dig(about, "trim_us") or 0):
        return
    passed = of.tables["qdisc"].filter(IN_MEASUREMENT, kind="netem", host=host, dev=device or "")
    for (since, state), until in zip(states, [*(at for at, _ in states[1:]), None], strict=True):
        if state.policer is None:
            continue
        rate_bps, burst = state.policer.rate_bps, state.policer.burst_bytes
        late_ns = of.point.validity.start_error_ns
        begin = since + late_ns + 1000 * state.delay_us if since else 0
        own = passed.filter(pl.col("t_ns") >= begin, pl.col("t_ns") < (until or of.measurement.duration_ns))
        most = most_at_once(own, rate_bps)
        tolerance = path.packet_bytes + rate_bps * max(late_ns, LATE_NS) / 8e9
        reason = ""
        if most is None:
            reason = "what its policer let pass is not known: the delay line behind it was not sampled"
        elif most > burst + tolerance:
            reason = (
                f"its policer let {human(round(most))} bytes pass beyond its rate of {human(rate_bps, 'bps')}"
            )
            reason += f": its burst is {human(burst)}"
        yield Check(
            name="policer",
            kind="validity",
            subject=f"{host} {name} from {human(since, 'ns')}",
            requested=burst,
            measured=most,
            tolerance=tolerance,
            unit="bytes",
            ok=not reason,
            reason=reason,
        )


def _unexpected_drops(of: Asked, host: str, name: Way, path: PlannedPath) -> Iterator[Check]:
    """Drops behind the bottleneck: without requested loss they mean that the delay line overflowed."""
    about, way = dig(of.run.states[host], "path"), path.way(name)
    if not has_delay_line(way, dig(about, "trim_us") or 0):
        return
    device = dig(about, "devices", name, "delay_line")
    netems = of.tables["qdisc"].filter(pl.col("kind") == "netem", host=host, dev=device or "")
    for phase in of.point.phases:
        during = [state for at, state in way.states if at == 0 or phase.phase == "measurement"]
        if any(state.loses for state in during):
            continue
        yield close(
            "unexpected drops",
            f"{host} {name} {phase.phase}",
            0,
            dropped_share(netems.filter(phase=phase.phase)),
            tolerance=of.point.validity.unexpected_drops,
            unit="share",
            what="share of packets that a delay line dropped",
            missing="it was not sampled" if device else "the router did not say which device it is",
        )
