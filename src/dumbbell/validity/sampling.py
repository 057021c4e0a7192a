"""Samples, traces, captures and final counts are complete."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator

import polars as pl

from dumbbell.facts.asked import Asked, lost_share
from dumbbell.facts.check import Check, close, fact, same
from dumbbell.plan import Flow
from dumbbell.plan.actions import CaptureAction
from dumbbell.run.content import (
    dig,
)
from dumbbell.units import human


def samples(of: Asked) -> Iterator[Check]:
    """Spools are complete, and each host was sampled at the requested rate."""
    for (host, phase), spool in of.run.spools.items():
        damage = None if spool is None else len(spool.damage)
        reason = "" if damage == 0 else "; ".join(spool.damage[:3]) if spool else "the spool is missing"
        yield fact("spool intact", f"{host} {phase}", 0, damage, unit="faults", ok=not reason, reason=reason)
    for host, part in of.measurement.hosts.items():
        if part.sample.anything:
            event = of.run.event("sampler", host=host, phase="measurement") or {}
            share = event["missed"] / event["ticks"] if event.get("ticks") and "missed" in event else None
            if share is None and (yield from _killed(of, host)):
                continue
            yield close(
                "samples missed",
                host,
                0,
                share,
                tolerance=of.point.validity.missed_samples,
                unit="share",
                what="share of samples missed",
                missing="the agent did not report on its sampler",
            )


def judged(flow: Flow) -> bool:
    """Whether the end of each connection must be seen; not for a command, whose behaviour is unknown."""
    return flow.of_kind.follows_sockets and flow.of_kind.counted_by == "tcp"


def finals(of: Asked) -> Iterator[Check]:
    """The agent saw the end of every connection: otherwise its totals stop at the last sample."""
    followed = {flow.name for flow in of.measurement.flows if judged(flow)}
    for host, part in of.measurement.hosts.items():
        if followed.intersection(part.sample.tcp):
            event = of.run.event("finals", host=host, phase="measurement")
            missed, what = dig(event, "open"), "final totals of its connections not known"
            reason = ""
            if missed is None:
                reason = f"{what}: the agent did not say which ends it saw"
            elif missed or dig(event, "lost"):
                reason = f"{what}: the ends of {missed} were not seen"
                reason += f", {lost} messages of the kernel were lost" if (lost := dig(event, "lost")) else ""
            yield fact("ends missed", host, 0, missed, ok=not reason, reason=reason)


def _killed(of: Asked, host: str) -> Generator[Check, None, bool]:
    """Whether the agent was killed while it measured; if so, yields a check that says what is missing."""
    mended = of.run.event("spool_mended", host=host, phase="measurement")
    last, t0 = of.run.last_row_unix_ns(host, "measurement"), of.run.t0_unix_ns("measurement")
    if mended is None or last is None or t0 is None:
        return False
    phase = of.measurement
    lost = math.ceil((mended["unix_ns"] - last) / phase.sampling_interval_ns)
    missed = max(0, t0 + phase.duration_ns - last)
    said = f"the agent was killed: its last row is of {human((last - t0) / 1e9, 's')}"
    for name, unit, measured, what in (
        ("samples lost", "ticks", lost, f"at most {lost} later samples were taken, and are lost"),
        ("samples missed", "share", missed / phase.duration_ns, "there is none after that"),
    ):
        yield fact(name, host, 0, measured, unit=unit, ok=False, reason=f"{said}; {what}")
    return True


def sources(of: Asked) -> Iterator[Check]:
    """Sources that a scenario has to ask for, because not every host has them, were available."""
    tcp_info = of.tables["tcp_info"].filter(pl.col("phase") == "measurement")
    counted = tcp_info.filter(pl.col("segs_seen").is_not_null()) if "segs_seen" in tcp_info else None
    for host, part in of.measurement.hosts.items():
        for action in part.actions:
            if isinstance(action, CaptureAction):
                yield from _capture(of, host, action.name)
        if part.sample.trace and (yield from _source(of, host, "trace")):
            event = of.run.event("trace", host=host, phase="measurement") or {}
            lost, records = event.get("lost"), event.get("records")
            yield close(
                "trace records lost",
                host,
                0,
                lost_share(lost, records),
                tolerance=of.point.validity.missed_samples,
                unit="share",
                what="share of trace records lost",
                missing="the agent did not report on its trace",
            )
            yield from _connections(of, "traced", host, of.tables.get("tcp_probe"))
        if part.sample.ebpf and (yield from _source(of, host, "ebpf")):
            yield from _connections(of, "counted by eBPF", host, counted)


def _source(of: Asked, host: str, source: str) -> Generator[Check, None, bool]:
    """Whether the agent of a host had a source with all its parts."""
    lacking = [
        f"{event.get('name')}: {event.get('reason')}".removeprefix(f"{source}: ")
        for event in of.run.agent_events
        if (event.get("event"), event["host"], event["phase"], event.get("source"))
        == ("collector_unavailable", host, "measurement", source)
    ]
    found = None if lacking else source
    yield same("source", host, source, found, what=source, missing="; ".join(lacking))
    return not lacking


def _capture(of: Asked, host: str, device: str) -> Iterator[Check]:
    """The kernel had room for all packets that were to be captured at an interface."""
    event = of.run.event("capture", host=host, phase="measurement", name=device) or {}
    packets, dropped = event.get("packets"), event.get("dropped")
    yield close(
        "packets not captured",
        f"{host} {device}",
        0,
        lost_share(dropped, packets),
        tolerance=of.point.validity.missed_samples,
        unit="share",
        what="share of packets that the capture lost",
        missing="the agent did not report on it",
    )


def _connections(of: Asked, how: str, host: str, rows: pl.DataFrame | None) -> Iterator[Check]:
    """Every connection with an end on a host has rows."""
    for flow in of.measurement.flows:
        if flow.name in of.measurement.hosts[host].sample.tcp and flow.kind in ("tcp", "iperf3_tcp"):
            asked, found = flow.streams * (flow.src_host, flow.dst_host).count(host), 0
            if rows is not None:
                own = rows.filter((pl.col("host") == host) & (pl.col("flow") == flow.name))
                found = own.select("side", "stream").n_unique()
            reason = "" if found == asked else f"{found} of {asked} connections {how}"
            yield fact(
                f"connections {how}", f"{flow.name} {host}", asked, found, ok=not reason, reason=reason
            )
