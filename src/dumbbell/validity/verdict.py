"""Is a run valid, and did it meet its expectations? Each requested fact beside the measured one.

A check that cannot be made, because something is missing, is not ok. ``failed`` only ever comes from a
valid run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from dumbbell import analysis, validity
from dumbbell.ingest.flows import (
    client_report,
    failures,
    paced_bps,
    pacing_bps,
    sent_bps,
    unsampled_share,
    why_no_start,
)
from dumbbell.ingest.path import (
    TC_ROUNDING_US,
    TIMESTAMP_NS,
    agrees,
    blast_rate_bps,
    conditions_held,
    dropped_share,
    first_min_rtts,
    has_delay_line,
    holds,
    most_lost,
    probe_ns,
    served_bps,
)
from dumbbell.metrics.measure import Tables as Measured
from dumbbell.metrics.registry import METRICS
from dumbbell.plan import Conditions, Flow, PlannedPath, Validity, Way, change_name, rate_name
from dumbbell.run.content import (
    IN_MEASUREMENT,
    Run,
    congestion_controls,
    dig,
    ping_duplicates,
    ping_replies,
    ping_rtts_ns,
    start_error_ns,
)
from dumbbell.run.directory import read_json, read_jsonl
from dumbbell.run.host_settings import settings_checks
from dumbbell.scenario.hosts import READ_GAPS
from dumbbell.units import human
from dumbbell.validity.answers import FOREIGN
from dumbbell.validity.fact import Check

NDT = {"ndt7_download": "Download", "ndt7_upload": "Upload"}  # kinds, and what their client calls them
TROUBLE = "execution"  # name of the check that says what went wrong on the way to the results


class Verdict(BaseModel):
    """The content of ``verdict.json``."""

    model_config = ConfigDict(extra="forbid")
    state: Literal["passed", "failed", "invalid"]
    reasons: list[str]
    checks: list[Check]

    @classmethod
    def of(cls, checks: list[Check]) -> Verdict:
        """Invalid if any validity check fails, else failed if an expectation is not met, else passed."""
        invalid = [c for c in checks if c.kind == "validity" and not c.ok]
        failed = [c for c in checks if c.kind == "expect" and not c.ok]
        state: Literal["passed", "failed", "invalid"] = (
            "invalid" if invalid else "failed" if failed else "passed"
        )
        return cls(
            state=state, reasons=[f"{c.subject}: {c.reason}" for c in invalid or failed], checks=checks
        )


class Stored(BaseModel):
    """Rows of one measurement in the spools and in InfluxDB; ``stored`` is None if it could not be asked."""

    spooled: int
    stored: int | None
    backfilled: int = 0
    error: str = ""


def judge(
    run: Run, tables: dict[str, pl.DataFrame], stored: dict[str, Stored] | None, troubles: Sequence[str] = ()
) -> list[Check]:
    """All checks of a run. ``stored`` is None if the run was made without InfluxDB."""
    return [*asked(run, tables, stored, troubles), *validity.checks(run, tables)]


def asked(
    run: Run, tables: dict[str, pl.DataFrame], stored: dict[str, Stored] | None, troubles: Sequence[str] = ()
) -> list[Check]:
    """Those of what the plan asks for, beside what was found."""
    judge = _Judge(run, tables)
    judge.troubles(troubles)
    judge.agents()
    judge.states()
    judge.checks += settings_checks(run)
    judge.gaps()
    if run.point.path is not None:
        judge.path(run.point.path)
    judge.clocks()
    judge.strangers()
    judge.flows()
    judge.pings()
    judge.samples()
    judge.finals()
    judge.cpus()
    judge.sources()
    judge.stored(stored or {})
    judge.expectations()
    return judge.checks


class _Judge:
    def __init__(self, run: Run, tables: dict[str, pl.DataFrame]) -> None:
        self.run = run
        self.point = run.point
        self.tables = tables
        self.measurement = run.point.phase("measurement")
        self.checks: list[Check] = []
        self.idle_rtts_ns: dict[str, float | None] = {}  # by pair

    # three kinds of comparison

    def same(
        self, name: str, subject: str, requested: Any, measured: Any, *, what: str, missing: str = ""
    ) -> None:
        """Both are equal."""
        ok = measured is not None and measured == requested
        reason = "" if ok else f"{what}: asked {human(requested)}, found {human(measured)}"
        if measured is None:
            reason = f"{what} not known: {missing or 'nothing was read back'}"
        self._add(name, subject, requested, measured, ok=ok, reason=reason)

    def close(
        self,
        name: str,
        subject: str,
        requested: float,
        measured: float | None,
        *,
        tolerance: float,
        unit: str,
        what: str,
        missing: str,
    ) -> None:
        """They differ by no more than a tolerance."""
        if measured is None:
            reason = f"{what} not known: {missing}"
        elif abs(measured - requested) <= tolerance:
            reason = ""
        elif requested == 0:
            reason = f"{what} is {human(measured, unit)}, more than {human(tolerance, unit)}"
        else:
            bounds = f"{human(requested, unit)} ± {human(tolerance, unit)}"
            reason = f"{what} is {human(measured, unit)}, asked {bounds}"
        self._add(
            name, subject, requested, measured, tolerance=tolerance, unit=unit, ok=not reason, reason=reason
        )

    def _add(self, name: str, subject: str, requested: Any, measured: Any, *, ok: bool, **rest: Any) -> None:
        kind = rest.pop("kind", "validity")
        self.checks.append(
            Check(
                name=name, kind=kind, subject=subject, requested=requested, measured=measured, ok=ok, **rest
            )
        )

    # hosts

    def troubles(self, troubles: Sequence[str]) -> None:
        for trouble in troubles:
            self._add(TROUBLE, "run", "no error", trouble, ok=False, reason=trouble)

    def agents(self) -> None:
        for phase in self.point.phases:
            for host in phase.hosts:
                status = self.run.status(host, phase.phase)
                state = dig(status, "state")
                reason = (
                    ""
                    if state == "done"
                    else f"the agent's {phase.phase} ended {state}: {dig(status, 'reason')}"
                )
                if state is None:
                    reason = f"the agent left no status of {phase.phase}"
                self._add("agent", f"{host} {phase.phase}", "done", state, ok=not reason, reason=reason)

    def states(self) -> None:
        for host, planned in self.point.hosts.items():
            state, asked = self.run.states[host], planned.state
            found: Any
            devices = dig(state, "nic") or {}
            if asked.kernel is not None:
                self.same("kernel", host, asked.kernel, dig(state, "kernel"), what="kernel")
            for module, parameters in asked.modules.items():
                found = dig(state, "modules", "loaded", module, "parameters")
                if found is not None:
                    found = {name: _like(found.get(name), value) for name, value in parameters.items()}
                self.same(f"module {module}", host, parameters, found, what=f"parameters of {module}")
            if not devices and (asked.offloads or asked.txqueuelen or asked.mtu or asked.qdisc):
                self.same("nic", host, "read back", None, what="state of the interfaces")
            for device, nic in devices.items():
                subject = f"{host} {device}"
                if asked.offloads:
                    found = {name: dig(nic, "offloads", name) for name in asked.offloads}
                    self.same("offloads", subject, asked.offloads, found, what="offloads")
                for name in ("txqueuelen", "mtu", "qdisc"):
                    if (wanted := getattr(asked, name)) is not None:
                        self.same(name, subject, wanted, dig(nic, name), what=name)
            if asked.routes and "routers" not in planned.groups:
                self.routes(
                    host, asked.routes, [r for nic in devices.values() for r in dig(nic, "routes") or []]
                )
            for name, value in asked.sysctls.items():
                found = dig(state, "sysctl", name)
                found = None if found is None else " ".join(str(found).split())
                self.same(name, host, " ".join(value.split()), found, what=name)
            if asked.congestion_controls:
                available = dig(state, "modules", "available")
                found = None if available is None else sorted(set(asked.congestion_controls) & set(available))
                self.same(
                    "congestion controls available",
                    host,
                    asked.congestion_controls,
                    found,
                    what="congestion controls available",
                )

    def routes(self, host: str, asked: Mapping[str, bool], routes: Sequence[Mapping[str, Any]]) -> None:
        """Options of all that lead to another network; a host without one has none of what is asked."""
        for route in routes:
            found = {option: route.get(option, False) for option in asked}
            self.same("route", host, asked, found, what=f"options of the route to {route['to']}")
        if not routes:
            self.same("route", host, asked, None, what="options of the routes to the other side")

    def gaps(self) -> None:
        """The qdisc fq, also below mq, would take the pacing of packets from their congestion control."""
        flows = [flow for flow in self.measurement.flows if flow.congestion_control in READ_GAPS]
        for host, flow in {flow.src_host: flow for flow in flows}.items():
            for device, nic in (dig(self.run.states[host], "nic") or {"": None}).items():
                root, leaves = dig(nic, "qdisc"), dig(nic, "qdisc_leaves") or []
                found = None if root is None or (root == "mq" and not leaves) else sorted({root, *leaves})
                reason = ""
                if found is None:
                    reason = f"{'qdiscs below mq' if root else 'qdisc'} not known: nothing was read back"
                elif "fq" in found:
                    who = f"{flow.congestion_control} ({flow.name}) sets each gap itself"
                    reason = f"qdisc: found {', '.join(found)}; {who}, which fq overrules: ask pfifo_fast"
                self._add("gaps", f"{host} {device}".strip(), "not fq", found, ok=not reason, reason=reason)

    def clocks(self) -> None:
        for host in self.point.hosts:
            clock = dig(self.run.states[host], "clock")
            missing = "the clock was not read"
            if clock is not None and dig(clock, "synchronised") is not True:
                clock, missing = None, "the clock is not synchronised"
            for fact in ("offset", "root dispersion"):
                self.close(
                    f"clock {fact}",
                    host,
                    0,
                    dig(clock, f"{fact.replace(' ', '_')}_ns"),
                    tolerance=self.point.validity.clock_offset_ns,
                    unit="ns",
                    what=f"clock {fact}",
                    missing=missing,
                )
        for phase in self.point.phases:
            for host in phase.hosts:
                event = self.run.event("clock_watched", host=host, phase=phase.phase)
                self.close(
                    "clock step",
                    f"{host} {phase.phase}",
                    0,
                    dig(event, "largest_step_ns"),
                    tolerance=self.point.validity.clock_offset_ns,
                    unit="ns",
                    what="largest step of the clock",
                    missing="the agent did not watch it to the end",
                )

    def strangers(self) -> None:
        """Who has no part in the plan was kept from the ports of hosts, or told from a flow's own client.

        As many as may have come: they are in no number of a flow.
        """
        for phase in self.point.phases:
            for host, part in phase.hosts.items():
                if not part.waits:
                    continue
                event = self.run.event("strangers", host=host, phase=phase.phase)
                packets, opened = dig(event, "packets"), dig(event, "open")
                reason = ""
                if packets is None:
                    why = dig(event, "reason") or "the agent did not count them"
                    reason = f"packets of strangers to its ports not known: {why}"
                elif packets and opened:
                    came = f"{human(packets)} packets of strangers came, the first {dig(event, 'first')}"
                    reason = f"{came}, and a port was open to them: {'; '.join(opened)}"
                told_apart = sum(
                    self.run.foreign(flow, phase) for flow in phase.flows if flow.server_host == host
                )
                self._add(
                    "strangers",
                    f"{host} {phase.phase}",
                    "kept out",
                    None if packets is None else packets + told_apart,
                    ok=not reason,
                    reason=reason,
                )

    # path

    def path(self, path: PlannedPath) -> None:
        validity = self.point.validity
        routers = self.run.routers
        if not routers:
            missing = "no host of the plan is a router"
            self.same("path", "path", "a router", None, what="emulated path", missing=missing)
        for host in routers:
            for name, asked in path.ways:
                wanted = asked.model_dump(exclude={"changes"})
                found = dig(self.run.states[host], "path", name)
                if dig(found, "delay_us") is not None:  # the path's own delay is part of what was asked
                    trim_us = dig(self.run.states[host], "path", "trim_us") or 0
                    delay_us = found["delay_us"] + trim_us
                    if abs(delay_us - asked.delay_us) <= TC_ROUNDING_US:
                        delay_us = asked.delay_us
                    found = found | {"delay_us": delay_us}
                if found is not None and agrees(wanted, found):
                    found = wanted  # not to show rounding of tc's floats as a difference
                self.same("path", f"{host} {name}", wanted, found, what="emulated path")
                self.changes(host, name, path)
            if any(way.changes for _, way in path.ways):
                self.restored(host)
        self.idle_rtt(path, validity)
        self.own_delays(path, validity)
        self.rate(path, validity)
        for host in routers:
            for name, _ in path.ways:
                self.unexpected_drops(host, name, path)

    def changes(self, host: str, name: Way, path: PlannedPath) -> None:
        """Each change was made at its time, and the kernel had it from then to the next one."""
        changes = path.way(name).changes or []
        ends_ns = [*(change.at_ns for change in changes[1:]), None]
        for number, (asked, end_ns) in enumerate(zip(changes, ends_ns, strict=False), start=1):
            subject = f"{host} {name} from {human(asked.at_ns, 'ns')}"
            of = {"host": host, "phase": "measurement", "name": change_name(name, number)}
            event = self.run.event("path_changed", **of) or {}
            late_ns = event["error_ns"] + event["took_ns"] if event.get("ok") else None
            self.close(
                "path change",
                subject,
                0,
                late_ns,
                tolerance=self.point.validity.start_error_ns,
                unit="ns",
                what="time after which the path was as changed",
                missing=event.get("reason") or "the agent says nothing of it",
            )
            held, wanted = None, asked.model_dump(include=set(Conditions.model_fields) - {"distribution"})
            if late_ns is not None:
                planned = event["planned_unix_ns"]
                until = None if end_ns is None else planned + end_ns - asked.at_ns
                held = conditions_held(self.run, self.tables, host, name, (planned + late_ns, until))
            unlike = [conditions for conditions in held or [] if not holds(wanted, conditions)]
            self.same(
                "path",
                subject,
                wanted,
                (unlike or [wanted])[0] if held else None,
                what="emulated path",
                missing="the router's queues were not sampled",
            )

    def restored(self, host: str) -> None:
        """A router undid its changes after the end, when the last socket of the flows had ended."""
        rows = self.tables["tcp_info"].filter(IN_MEASUREMENT)
        ended_ns = rows.filter("final")["t_ns"].max() if "final" in rows else None
        least = max(self.measurement.duration_ns, ended_ns or 0)
        event = self.run.event("path_restored", host=host, phase="measurement")
        t0 = self.run.t0_unix_ns("measurement")
        found = None if event is None or t0 is None else event["unix_ns"] - t0
        reason = ""
        if found is None:
            reason = "when the path was restored is not known: the agent says nothing of it"
        elif found < least:
            reason = f"the path was restored at {human(found, 'ns')}, while flows may still have met it"
            reason += f": asked {human(least, 'ns')} or later"
        self._add("path restored", host, least, found, unit="ns", ok=not reason, reason=reason)

    def idle_rtt(self, path: PlannedPath, validity: Validity) -> None:
        """The quickest echo shows the path; what the median takes longer, hosts have waited for a core.

        Where the path itself jitters, the median shows it.
        """
        for host, ping in self.run.pings("calibration"):
            output = self.run.raw(host, "calibration", f"ping-{ping.name}.txt")
            rtts = ping_rtts_ns(output)
            if not any(way.duplicate for _, way in path.ways):
                duplicates = ping_duplicates(output)
                self.same("idle RTT, duplicates", ping.name, 0, duplicates, what="duplicate echo replies")
            least = max(1, ping.count - 1 - most_lost([path.forward, path.reverse], ping.count - 1))
            missing = f"{len(rtts)} of {ping.count - 1} echo replies, of which {least} had to come"
            quickest, median = None, None
            if len(rtts) >= least:
                quickest, median = min(rtts), round(statistics.median(rtts))
            self.idle_rtts_ns[ping.name] = median if path.jitters else quickest
            self.close(
                "idle RTT",
                ping.name,
                path.rtt_ns,
                self.idle_rtts_ns[ping.name],
                tolerance=validity.rtt_tolerance * path.rtt_ns,
                unit="ns",
                what="idle RTT",
                missing=missing,
            )
            if not path.jitters:
                self.close(
                    "idle RTT, waits",
                    ping.name,
                    0,
                    None if median is None or quickest is None else median - quickest,
                    tolerance=validity.rtt_wait_ns,
                    unit="ns",
                    what="the median echo's wait beyond the quickest",
                    missing=missing,
                )

    def own_delays(self, path: PlannedPath, validity: Validity) -> None:
        """The RTT of its pair, and what packets to the flow's port take longer than others."""
        for flow in self.measurement.flows:
            for delay in flow.own_delays:
                asked_ns = path.rtt_ns + 1000 * delay.delay_us
                idle_ns = self.idle_rtts_ns.get(f"{flow.src_host}-{flow.dst_host}")
                delayed_ns, plain_ns = (
                    probe_ns(self.run, flow, delay.protocol, probe, median=path.jitters)
                    for probe in ("delayed", "plain")
                )
                measured_ns, missing = None, "its pair has none"
                if delayed_ns is None or plain_ns is None:
                    missing = "too few packets of the probes of its delay came through"
                elif idle_ns is not None:
                    measured_ns = idle_ns + delayed_ns - plain_ns
                self.close(
                    "idle RTT",
                    f"{flow.name} {delay.protocol}",
                    asked_ns,
                    measured_ns,
                    tolerance=validity.rtt_tolerance * asked_ns,
                    unit="ns",
                    what="idle RTT",
                    missing=missing,
                )

    def rate(self, path: PlannedPath, validity: Validity) -> None:
        """As the bottleneck serves its queue, and as it arrives, which waits of the receiver blur."""
        for flow in self.point.phase("calibration").flows:
            if flow.name != rate_name(flow.direction):
                continue
            asked_bps = path.rate_bps(flow.direction)
            sent, arrived = (
                read_json(self.run.raw(host, "calibration", f"udp-{flow.name}-{side}.json"))
                for host, side in ((flow.src_host, "sender"), (flow.dst_host, "receiver"))
            )
            pair = f"{flow.src_host}-{flow.dst_host}"
            self.close(
                "rate",
                pair,
                asked_bps,
                served_bps(self.tables["qdisc"], path, flow),
                tolerance=validity.rate_tolerance * asked_bps,
                unit="bps",
                what="rate of the bottleneck",
                missing="no router was seen to have a queue while the calibration filled it",
            )
            self.close(
                "rate, arriving",
                pair,
                asked_bps,
                blast_rate_bps(path, flow, sent, arrived),
                tolerance=validity.arrival_tolerance * asked_bps,
                unit="bps",
                what="rate at which the path's packets arrive",
                missing="the ends of the calibration's flow left no counts",
            )

    def unexpected_drops(self, host: str, name: Way, path: PlannedPath) -> None:
        """Drops behind the bottleneck: where a direction loses nothing, its delay line overflowed."""
        about, way = dig(self.run.states[host], "path"), path.way(name)
        if not has_delay_line(way, dig(about, "trim_us") or 0):
            return
        device = dig(about, "devices", name, "delay_line")
        netems = self.tables["qdisc"].filter(pl.col("kind") == "netem", host=host, dev=device or "")
        for phase in self.point.phases:
            during = [state for at, state in way.states if at == 0 or phase.phase == "measurement"]
            if any(state.loses for state in during):
                continue
            self.close(
                "unexpected drops",
                f"{host} {name} {phase.phase}",
                0,
                dropped_share(netems.filter(phase=phase.phase)),
                tolerance=self.point.validity.unexpected_drops,
                unit="share",
                what="share of packets that a delay line dropped",
                missing="it was not sampled" if device else "the router did not say which device it is",
            )

    # flows and samples

    def flows(self) -> None:
        tcp_info = self.tables["tcp_info"].filter(pl.col("phase") == "measurement")
        fetched = analysis.fetches(self.tables["http_fetch"].filter(IN_MEASUREMENT))
        for flow in self.measurement.flows:
            for failure in failures(self.run, flow):
                self._add("program", flow.name, "no error", failure, ok=False, reason=failure)
            if flow.kind in NDT:
                self.ndt(flow)
                continue
            if flow.kind == "command":
                continue  # that it ran is what the agent's state says
            self.close(
                "start",
                flow.name,
                0,
                start_error_ns(self.run, flow),
                tolerance=self.point.validity.start_error_ns,
                unit="ns",
                what="start error",
                missing=why_no_start(self.run, flow),
            )
            if flow.kind == "udp":
                self.datagrams(flow)
            if flow.kind in ("iperf3_tcp", "iperf3_udp"):
                self.iperf3(flow)
            self.path_met(flow, tcp_info)
            if flow.kind == "atou":
                self.atou(flow, tcp_info)
            if flow.congestion_control is None:
                continue
            found = ", ".join(sorted(congestion_controls(self.run, self.tables, flow))) or None
            self.same(
                "congestion control", flow.name, flow.congestion_control, found, what="congestion control"
            )
            if flow.kind == "http":
                self.fetches(flow, fetched.filter(pl.col("flow") == flow.name))
                continue
            for side in ("sender", "receiver"):
                rows = tcp_info.filter((pl.col("flow") == flow.name) & (pl.col("side") == side))
                streams = rows["stream"].n_unique()
                reason = "" if streams == flow.streams else f"{streams} of {flow.streams} connections sampled"
                self._add(
                    "connections sampled",
                    f"{flow.name} {side}",
                    flow.streams,
                    streams,
                    ok=not reason,
                    reason=reason,
                )
                if flow.kind == "iperf3_tcp" and not flow.bytes:
                    self.sampled(flow, side, rows, flow.end_ns)
            if flow.pacing_bps is not None:
                self.pacing(flow, flow.pacing_bps, tcp_info)

    def pings(self) -> None:
        """A ping beside the flows had enough replies for its RTTs to be those of the path.

        Full queues drop echoes too, and nobody asked how many; what the path is asked to lose comes on top.
        """
        path = self.point.path
        arriving = [min(state.arriving for _, state in way.states) for _, way in path.ways] if path else []
        least = self.point.validity.ping_replies * math.prod(arriving)
        for host, ping in self.run.pings("measurement"):
            share = len(ping_replies(self.run.raw(host, "measurement", f"ping-{ping.name}.txt"))) / ping.count
            what = "share of its echo requests that were answered"
            reason = f"{what} is {human(share, 'share')}, asked at least {human(least, 'share')}"
            ok = share >= least
            self._add(
                "ping replies", ping.name, least, share, unit="share", ok=ok, reason="" if ok else reason
            )

    def path_met(self, flow: Flow, tcp_info: pl.DataFrame) -> None:
        """Connections that are made ahead met no path with a lower RTT than that of the flow's start has."""
        path = self.point.path
        if path is None or flow.kind not in ("iperf3_tcp", "atou"):
            return
        first = first_min_rtts(tcp_info, flow)
        requested, measured, tolerance = None, None, None
        reason = "the least RTT of its connections is not known: no sample has it after the start"
        if not first.is_empty():
            until_ns, measured = first.select(pl.col("t_ns").max(), 1000 * pl.col("min_rtt_us").min()).row(0)
            requested = path.least_rtt_ns(flow.start_ns, until_ns) + 1000 * (flow.delay_us or 0)
            tolerance = TIMESTAMP_NS + self.point.validity.rtt_tolerance * requested
            reason = ""
            if measured < requested - tolerance:
                reason = f"it met an RTT of {human(measured, 'ns')} before its start, and its path has"
                reason += f" {human(requested, 'ns')}: it was connected over another"
        self._add(
            "path met",
            flow.name,
            requested,
            measured,
            tolerance=tolerance,
            unit="ns",
            ok=not reason,
            reason=reason,
        )

    def atou(self, flow: Flow, tcp_info: pl.DataFrame) -> None:
        """Both ends had what they were asked, and came to the end that was planned; all of it was told."""
        told = read_json(self.run.raw(flow.src_host, "measurement", f"atou-{flow.name}-sender.json"))
        received = read_jsonl(self.run.raw(flow.dst_host, "measurement", f"atou-{flow.name}-receiver.json"))
        for side, asked, text in (
            ("sender", flow.sender, dig(told, "config")),
            ("receiver", flow.receiver, dig(told, "receiver_config")),
        ):
            lines = dict(line.split(" ", 1) for line in text.splitlines()) if text else {}
            found = {key: _like_word(lines.get(key), value) for key, value in (asked or {}).items()}
            self.same(
                "configuration",
                f"{flow.name} {side}",
                asked or {},
                found if lines else None,
                what=f"configuration of its {side}",
                missing=dig(told, "error") or "the sender left no report with it",
            )
        segments = int((flow.sender or {}).get("maxpkts", "0"))
        if not segments or (dig(told, "snd_una") or 0) < segments:  # which end it earlier
            self.close(
                "transfer",
                flow.name,
                flow.duration_ns,
                dig(told, "elapsed_ns"),
                tolerance=self.point.validity.start_error_ns,
                unit="ns",
                what="duration of the transfer",
                missing="the sender left no report",
            )
        self.close(
            "lines lost",
            flow.name,
            0,
            dig(told, "lost_lines"),
            tolerance=0,
            unit="",
            what="number of lines of trace, events and samples that were not written",
            missing="the sender left no report",
        )
        end = received[-1] if len(received) == 1 else None
        missing = {
            "sender": "the sender left no report",
            "receiver": f"the receiver told of {len(received)} flows",
        }
        unsent, acks = dig(end, "unsent_acks"), dig(end, "acks_sent")  # of which unsent are a part
        drops = self.point.validity.unexpected_drops
        for name, side, share, most, what in (
            (
                "socket drops",
                "sender",  # windows grow by the ACK
                _lost_share(dig(told, "path", "socket_drops"), dig(told, "pkts_in")),
                drops,
                "ACKs that found the sender's socket full",
            ),
            (
                "socket drops",
                "receiver",
                _lost_share(dig(end, "socket_drops"), dig(end, "arrived_segments")),
                drops,
                "segments that found the receiver's socket full",
            ),
            (
                "foreign",
                "receiver",
                _lost_share(dig(end, "foreign"), dig(end, "arrived_segments")),
                FOREIGN,
                "datagrams that were of no flow, or of another one",
            ),
            (
                "unsent ACKs",
                "receiver",
                None if unsent is None or acks is None else unsent / max(acks, 1),
                drops,
                "ACKs that the receiver's host refused",
            ),
        ):
            self.close(
                name,
                f"{flow.name} {side}",
                0,
                share,
                tolerance=most,
                unit="share",
                what=f"share of {what}",
                missing=missing[side],
            )
        end_ns = flow.start_ns + (dig(told, "elapsed_ns") or flow.duration_ns)
        self.sampled(flow, "sender", tcp_info.filter(flow=flow.name, side="sender"), end_ns)

    def ndt(self, flow: Flow) -> None:
        """Whether the client has told what came of the whole test."""
        file = self.run.raw(flow.client_host, "measurement", f"command-{flow.name}-client.txt")
        told = read_jsonl(file)
        throughput = dig(told[-1], NDT[flow.kind], "Throughput", "Value") if told else None
        found = None if throughput is None else float(throughput) * 1e6
        reason = "" if found else "the client did not come to the end of its test"
        self._add("NDT throughput", flow.name, None, found, unit="bps", ok=not reason, reason=reason)

    def fetches(self, flow: Flow, fetched: pl.DataFrame) -> None:
        """All that were asked for were done in full, and the server's kernel has told of each.

        Where no number is asked for, it is all that the flow's end did not cut, and one at the least.
        """
        result = read_json(self.run.raw(flow.client_host, "measurement", f"http-{flow.name}-receiver.json"))
        begun, cut = dig(result, "begun"), dig(result, "cut")
        asked, reason = flow.fetches, ""
        if begun is None or cut is None:
            reason = "the client left no result: it is not known which fetches have begun"
        elif asked is None:
            asked = max(1, begun - cut)
        done = fetched.filter(pl.col("done") & (pl.col("received_bytes") == flow.fetch_bytes))
        if not reason and done.height != asked:
            reason = f"{done.height} of {asked} fetches were done"
            if (failures := fetched["error"].drop_nulls()).len():
                reason += f", {failures.len()} failed, the first: {failures[0]}"
        self._add("fetches", flow.name, asked, done.height, ok=not reason, reason=reason)
        if done.is_empty():
            return
        served, connections = done["segments"].count(), done["connect_ns"].count()
        self.same("fetches served", flow.name, done.height, served, what="fetches of which the server told")
        wanted = 1 if flow.persistent else done.height
        self.same("connections", flow.name, wanted, connections, what="connections")

    def datagrams(self, flow: Flow) -> None:
        """The sender kept to the plan's rate, and the receiver knows all that was lost."""
        self.rate_sent(flow, "the sender left no result")
        got = read_json(self.run.raw(flow.dst_host, "measurement", f"udp-{flow.name}-receiver.json"))
        missing = "the receiver left no result" if got is None else "no end marker came"
        end = "seen" if dig(got, "end_seen") else None
        missing += ": what was lost at the end is not known"
        self.same("end of datagrams", flow.name, "seen", end, what="end of its datagrams", missing=missing)

    def rate_sent(self, flow: Flow, missing: str) -> None:
        """Of datagrams, against the plan; one more or less is no error."""
        asked_bps = flow.mean_rate_bps or 0
        one_bps = 8e9 * (flow.payload_bytes or 0) / flow.duration_ns
        self.close(
            "rate sent",
            flow.name,
            asked_bps,
            sent_bps(self.run, flow),
            tolerance=max(self.point.validity.rate_tolerance * asked_bps, one_bps),
            unit="bps",
            what="rate sent",
            missing=missing,
        )

    def iperf3(self, flow: Flow) -> None:
        """The client sent for its whole time, over sockets with the options that were asked for."""
        report, missing = client_report(self.run, flow), "iperf3 left no report"
        if not flow.bytes:
            seconds = dig(report, "end", "sum_sent", "seconds")
            sent_ns = None if seconds is None else round(1e9 * seconds)
            reason = ""
            if sent_ns is None:
                reason = f"time for which iperf3 sent not known: {missing}"
            elif sent_ns < flow.duration_ns - self.point.validity.start_error_ns:
                least = human(flow.duration_ns, "ns")
                reason = f"time for which iperf3 sent is {human(sent_ns, 'ns')}, asked at least {least}"
            self._add(
                "time sent", flow.name, flow.duration_ns, sent_ns, unit="ns", ok=not reason, reason=reason
            )
        if flow.kind == "iperf3_udp":
            self.rate_sent(flow, missing)
        start = dig(report, "start")
        double = None if flow.socket_buffer_bytes is None else 2 * flow.socket_buffer_bytes  # socket(7)
        for name, asked, found in (
            ("MSS", flow.mss_bytes, dig(start, "tcp_mss")),
            ("send buffer", double, dig(start, "sndbuf_actual")),
            ("receive buffer", double, dig(start, "rcvbuf_actual")),
            ("DSCP", flow.dscp, (dig(start, "test_start", "tos") or 0) // 4 if start else None),
        ):
            if asked is not None:
                self.same(name, flow.name, asked, found, what=name, missing=missing)

    def pacing(self, flow: Flow, asked_bps: int, tcp_info: pl.DataFrame) -> None:
        """The kernel keeps each socket to the rate that was asked, in whole bytes per second."""
        rows = tcp_info.filter(flow=flow.name, side="sender")
        found, missing = pacing_bps(rows, asked_bps)
        self.close(
            "pacing", flow.name, asked_bps, found, tolerance=7, unit="bps", what="pacing", missing=missing
        )
        most = asked_bps * (1 + self.point.validity.rate_tolerance)
        rate, reason = paced_bps(rows, flow.start_ns - self.point.validity.start_error_ns), ""
        if rate is None:
            reason = "rate at which it was paced not known: the kernel does not tell what was sent"
        elif rate > most:
            reason = f"rate at which it was paced is {human(rate, 'bps')}, asked at most {human(most, 'bps')}"
        self._add("paced rate", flow.name, most, rate, unit="bps", ok=not reason, reason=reason)

    def sampled(self, flow: Flow, side: str, rows: pl.DataFrame, end_ns: int) -> None:
        """An end of a flow was sampled from its planned start on, without long pauses."""
        self.close(
            "samples missed",
            f"{flow.name} {side}",
            0,
            unsampled_share(rows, (flow.start_ns, end_ns), self.measurement.sampling_interval_ns),
            tolerance=self.point.validity.missed_samples,
            unit="share",
            what="share of its time in which it was not sampled",
            missing="there are no samples of it",
        )

    def samples(self) -> None:
        for (host, phase), spool in self.run.spools.items():
            damage = None if spool is None else len(spool.damage)
            reason = "" if damage == 0 else "; ".join(spool.damage[:3]) if spool else "the spool is missing"
            self._add(
                "spool intact", f"{host} {phase}", 0, damage, unit="faults", ok=not reason, reason=reason
            )
        for host, part in self.measurement.hosts.items():
            if part.sample.anything:
                event = self.run.event("sampler", host=host, phase="measurement") or {}
                share = event["missed"] / event["ticks"] if event.get("ticks") and "missed" in event else None
                if share is None and self.killed(host):
                    continue
                self.close(
                    "samples missed",
                    host,
                    0,
                    share,
                    tolerance=self.point.validity.missed_samples,
                    unit="share",
                    what="share of samples missed",
                    missing="the agent did not report on its sampler",
                )

    def finals(self) -> None:
        """The agent saw the end of every connection: without it, its totals stop at the last sample."""
        kinds = ("iperf3_tcp", *NDT)
        followed = {flow.name for flow in self.measurement.flows if flow.kind in kinds}
        for host, part in self.measurement.hosts.items():
            if followed.intersection(part.sample.tcp):
                event = self.run.event("finals", host=host, phase="measurement")
                missed, what = dig(event, "open"), "final totals of its connections not known"
                reason = ""
                if missed is None:
                    reason = f"{what}: the agent did not say which ends it saw"
                elif missed or dig(event, "lost"):
                    reason = f"{what}: the ends of {missed} were not seen"
                    reason += (
                        f", {lost} messages of the kernel were lost" if (lost := dig(event, "lost")) else ""
                    )
                self._add("ends missed", host, 0, missed, ok=not reason, reason=reason)

    def cpus(self) -> None:
        """No host was held up by a core that had no time left, for longer than is allowed."""
        rows = self.tables.get("cpu_core")
        busy = {} if rows is None else analysis.saturated(rows.filter(IN_MEASUREMENT))
        for host, part in self.measurement.hosts.items():
            if part.sample.cpu:
                self.close(
                    "CPU saturated",
                    host,
                    0,
                    busy.get(host),
                    tolerance=self.point.validity.cpu_saturated,
                    unit="share",
                    what="share of the time in which a core had no time left",
                    missing="its cores were not sampled",
                )

    def killed(self, host: str) -> bool:
        """Whether the agent was killed while it measured; if so, what that cost is said."""
        mended = self.run.event("spool_mended", host=host, phase="measurement")
        last, t0 = self.run.last_row_unix_ns(host, "measurement"), self.run.t0_unix_ns("measurement")
        if mended is None or last is None or t0 is None:
            return False
        phase = self.measurement
        lost = math.ceil((mended["unix_ns"] - last) / phase.sampling_interval_ns)
        missed = max(0, t0 + phase.duration_ns - last)
        said = f"the agent was killed: its last row is of {human((last - t0) / 1e9, 's')}"
        for name, unit, measured, what in (
            ("samples lost", "ticks", lost, f"at most {lost} later samples were taken, and are lost"),
            ("samples missed", "share", missed / phase.duration_ns, "there is none after that"),
        ):
            self._add(name, host, 0, measured, unit=unit, ok=False, reason=f"{said}; {what}")
        return True

    def sources(self) -> None:
        """What a scenario has to ask for, because not every host has it."""
        tcp_info = self.tables["tcp_info"].filter(pl.col("phase") == "measurement")
        counted = tcp_info.filter(pl.col("segs_seen").is_not_null()) if "segs_seen" in tcp_info else None
        for host, part in self.measurement.hosts.items():
            for action in part.actions:
                if action.kind == "capture":
                    self.capture(host, action.name)
            if part.sample.trace and self.source(host, "trace"):
                event = self.run.event("trace", host=host, phase="measurement") or {}
                lost, records = event.get("lost"), event.get("records")
                self.close(
                    "trace records lost",
                    host,
                    0,
                    _lost_share(lost, records),
                    tolerance=self.point.validity.missed_samples,
                    unit="share",
                    what="share of trace records lost",
                    missing="the agent did not report on its trace",
                )
                self.connections("traced", host, self.tables.get("tcp_probe"))
            if part.sample.ebpf and self.source(host, "ebpf"):
                self.connections("counted by eBPF", host, counted)

    def capture(self, host: str, device: str) -> None:
        """The kernel had room for the packets of an interface that were to be captured."""
        event = self.run.event("capture", host=host, phase="measurement", name=device) or {}
        packets, dropped = event.get("packets"), event.get("dropped")
        self.close(
            "packets not captured",
            f"{host} {device}",
            0,
            _lost_share(dropped, packets),
            tolerance=self.point.validity.missed_samples,
            unit="share",
            what="share of packets that the capture lost",
            missing="the agent did not report on it",
        )

    def source(self, host: str, source: str) -> bool:
        """Whether the agent of a host had a source with all that belongs to it."""
        lacking = [
            f"{event.get('name')}: {event.get('reason')}".removeprefix(f"{source}: ")
            for event in self.run.agent_events
            if (event.get("event"), event["host"], event["phase"], event.get("source"))
            == ("collector_unavailable", host, "measurement", source)
        ]
        found = None if lacking else source
        self.same("source", host, source, found, what=source, missing="; ".join(lacking))
        return not lacking

    def connections(self, how: str, host: str, rows: pl.DataFrame | None) -> None:
        """Whether there are rows of every connection that a host has one end or both of."""
        for flow in self.measurement.flows:
            if flow.name in self.measurement.hosts[host].sample.tcp and flow.kind == "iperf3_tcp":
                asked, found = flow.streams * (flow.src_host, flow.dst_host).count(host), 0
                if rows is not None:
                    own = rows.filter((pl.col("host") == host) & (pl.col("flow") == flow.name))
                    found = own.select("side", "stream").n_unique()
                reason = "" if found == asked else f"{found} of {asked} connections {how}"
                self._add(
                    f"connections {how}", f"{flow.name} {host}", asked, found, ok=not reason, reason=reason
                )

    # InfluxDB

    def stored(self, stored: dict[str, Stored]) -> None:
        for error in sorted({rows.error for rows in stored.values() if rows.stored is None}):
            spooled = sum(rows.spooled for rows in stored.values())
            self.same("rows stored", "InfluxDB", spooled, None, what="number of its rows", missing=error)
        for name, rows in stored.items():
            if rows.stored is not None:
                what = f"rows of {name} in InfluxDB"
                self.same("rows stored", name, rows.spooled, rows.stored, what=what)

    # expectations

    def expectations(self) -> None:
        tables = Measured(self.run, self.tables)
        for bound in self.point.expect:
            unit, name = METRICS[bound.metric].unit, bound.metric
            for measured in tables.measure(bound):
                value, kind, reason = measured.value, "expect", ""
                if value is None:
                    # What cannot be measured has not been missed: the run is invalid, not failed.
                    kind, reason = "validity", f"{name} not known: {measured.why}"
                elif bound.min is not None and value < bound.min:
                    reason = f"{name} is {human(value, unit)}, below {human(bound.min, unit)}"
                elif bound.max is not None and value > bound.max:
                    reason = f"{name} is {human(value, unit)}, above {human(bound.max, unit)}"
                requested = {"min": bound.min, "max": bound.max}
                self._add(
                    name,
                    measured.subject,
                    requested,
                    value,
                    unit=unit,
                    ok=not reason,
                    reason=reason,
                    kind=kind,
                )


def _lost_share(lost: int | None, kept: int | None) -> float | None:
    return None if lost is None or kept is None else lost / max(lost + kept, 1)


def _like_word(found: str | None, asked: str) -> str | None:
    """A value of atou's as it was asked for if it is the same: it may be written, or ordered, otherwise."""
    if found is None or found == asked:
        return found
    try:
        same = sorted(map(float, found.split(","))) == sorted(map(float, asked.split(",")))
    except ValueError:
        return found
    return asked if same else found


def _like(found: str | None, asked: str) -> str | None:
    """A module's parameter as it was asked for if it is the same: the kernel shows booleans as Y and N."""
    return asked if {asked, found} in ({"Y", "1"}, {"N", "0"}) else found
