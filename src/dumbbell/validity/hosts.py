"""Hosts were in the planned state: kernel, modules, interfaces, sysctls, clock, and time on their cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dumbbell import analysis
from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, close, fact, same
from dumbbell.kinds.found import FOUND
from dumbbell.run.content import (
    IN_MEASUREMENT,
    dig,
)
from dumbbell.scenario.hosts import READ_GAPS
from dumbbell.units import human

TROUBLE = "execution"  # name of the check that reports failures of the controller and the hosts


def troubles(troubles: Sequence[str]) -> Iterator[Check]:
    """Failures while the run was executed, before there were results."""
    for trouble in troubles:
        yield fact(TROUBLE, "run", "no error", trouble, ok=False, reason=trouble)


def agents(of: Asked) -> Iterator[Check]:
    """Each agent reached the end of its phase."""
    for phase in of.point.phases:
        for host in phase.hosts:
            status = of.run.status(host, phase.phase)
            state = dig(status, "state")
            reason = (
                "" if state == "done" else f"the agent's {phase.phase} ended {state}: {dig(status, 'reason')}"
            )
            if state is None:
                reason = f"the agent left no status of {phase.phase}"
            yield fact("agent", f"{host} {phase.phase}", "done", state, ok=not reason, reason=reason)


def states(of: Asked) -> Iterator[Check]:
    """The requested state of each host was read back."""
    for host, planned in of.point.hosts.items():
        state, asked = of.run.states[host], planned.state
        found: Any
        devices = dig(state, "nic") or {}
        if asked.kernel is not None:
            yield same("kernel", host, asked.kernel, dig(state, "kernel"), what="kernel")
        for module, parameters in asked.modules.items():
            found = dig(state, "modules", "loaded", module, "parameters")
            if found is not None:
                found = {name: _like(found.get(name), value) for name, value in parameters.items()}
            yield same(f"module {module}", host, parameters, found, what=f"parameters of {module}")
        if not devices and (asked.offloads or asked.txqueuelen or asked.mtu or asked.qdisc):
            yield same("nic", host, "read back", None, what="state of the interfaces")
        for device, nic in devices.items():
            subject = f"{host} {device}"
            if asked.offloads:
                found = {name: dig(nic, "offloads", name) for name in asked.offloads}
                yield same("offloads", subject, asked.offloads, found, what="offloads")
            for name in ("txqueuelen", "mtu", "qdisc"):
                if (wanted := getattr(asked, name)) is not None:
                    yield same(name, subject, wanted, dig(nic, name), what=name)
        if asked.routes and "routers" not in planned.groups:
            yield from _routes(
                of, host, asked.routes, [r for nic in devices.values() for r in dig(nic, "routes") or []]
            )
        for name, value in asked.sysctls.items():
            found = dig(state, "sysctl", name)
            found = None if found is None else " ".join(str(found).split())
            yield same(name, host, " ".join(value.split()), found, what=name)
        if asked.congestion_controls:
            available = dig(state, "modules", "available")
            found = None if available is None else sorted(set(asked.congestion_controls) & set(available))
            yield same(
                "congestion controls available",
                host,
                asked.congestion_controls,
                found,
                what="congestion controls available",
            )


def _routes(
    of: Asked, host: str, asked: Mapping[str, bool], routes: Sequence[Mapping[str, Any]]
) -> Iterator[Check]:
    """Options of all routes to other networks; a host without such a route fails the requested ones."""
    for route in routes:
        found = {option: route.get(option, False) for option in asked}
        yield same("route", host, asked, found, what=f"options of the route to {route['to']}")
    if not routes:
        yield same("route", host, asked, None, what="options of the routes to the other side")


def gaps(of: Asked) -> Iterator[Check]:
    """No host has the qdisc fq, also below mq: it would pace packets in place of the congestion control."""
    flows = [flow for flow in of.measurement.flows if flow.congestion_control in READ_GAPS]
    for host, flow in {flow.src_host: flow for flow in flows}.items():
        for device, nic in (dig(of.run.states[host], "nic") or {"": None}).items():
            root, leaves = dig(nic, "qdisc"), dig(nic, "qdisc_leaves") or []
            found = None if root is None or (root == "mq" and not leaves) else sorted({root, *leaves})
            reason = ""
            if found is None:
                reason = f"{'qdiscs below mq' if root else 'qdisc'} not known: nothing was read back"
            elif "fq" in found:
                who = f"{flow.congestion_control} ({flow.name}) sets each gap itself"
                reason = f"qdisc: found {', '.join(found)}; {who}, which fq overrules: ask pfifo_fast"
            yield fact("gaps", f"{host} {device}".strip(), "not fq", found, ok=not reason, reason=reason)


def clocks(of: Asked) -> Iterator[Check]:
    """Clocks agreed before the run, and no clock was set during it."""
    for host in of.point.hosts:
        clock = dig(of.run.states[host], "clock")
        missing = "the clock was not read"
        if clock is not None and dig(clock, "synchronised") is not True:
            clock, missing = None, "the clock is not synchronised"
        for name in ("offset", "root dispersion"):
            yield close(
                f"clock {name}",
                host,
                0,
                dig(clock, f"{name.replace(' ', '_')}_ns"),
                tolerance=of.point.validity.clock_offset_ns,
                unit="ns",
                what=f"clock {name}",
                missing=missing,
            )
    for phase in of.point.phases:
        for host in phase.hosts:
            event = of.run.event("clock_watched", host=host, phase=phase.phase)
            yield close(
                "clock step",
                f"{host} {phase.phase}",
                0,
                dig(event, "largest_step_ns"),
                tolerance=of.point.validity.clock_offset_ns,
                unit="ns",
                what="largest step of the clock",
                missing="the agent did not watch it to the end",
            )


def strangers(of: Asked) -> Iterator[Check]:
    """Packets from outside the plan were blocked from the hosts' ports, or told apart from a flow's client.

    Any number is allowed: they are in no number of a flow.
    """
    for phase in of.point.phases:
        for host, part in phase.hosts.items():
            if not part.waits:
                continue
            event = of.run.event("strangers", host=host, phase=phase.phase)
            packets, opened = dig(event, "packets"), dig(event, "open")
            reason = ""
            if packets is None:
                why = dig(event, "reason") or "the agent did not count them"
                reason = f"packets of strangers to its ports not known: {why}"
            elif packets and opened:
                came = f"{human(packets)} packets of strangers came, the first {dig(event, 'first')}"
                reason = f"{came}, and a port was open to them: {'; '.join(opened)}"
            told_apart = sum(
                FOUND[flow.kind].foreign(of.run, flow, phase)
                for flow in phase.flows
                if flow.server_host == host
            )
            yield fact(
                "strangers",
                f"{host} {phase.phase}",
                "kept out",
                None if packets is None else packets + told_apart,
                ok=not reason,
                reason=reason,
            )


def cpus(of: Asked) -> Iterator[Check]:
    """No host waited longer than allowed for a core."""
    rows = of.tables.get("cpu_core")
    busy = {} if rows is None else analysis.saturated(rows.filter(IN_MEASUREMENT))
    for host, part in of.measurement.hosts.items():
        if part.sample.cpu:
            yield close(
                "CPU saturated",
                host,
                0,
                busy.get(host),
                tolerance=of.point.validity.cpu_saturated,
                unit="share",
                what="share of the time in which a core had no time left",
                missing="its cores were not sampled",
            )


def _like(found: str | None, asked: str) -> str | None:
    """The found value of a parameter as it was requested, if equal: the kernel shows booleans as Y and N."""
    return asked if {asked, found} in ({"Y", "1"}, {"N", "0"}) else found
