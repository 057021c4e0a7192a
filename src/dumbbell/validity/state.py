"""The state of each host: all of it was read back, and what is told twice is told alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dumbbell.plan import PlannedPath
from dumbbell.rundir import read_json
from dumbbell.store.check import Check
from dumbbell.store.run import Run, dig
from dumbbell.validity import documents
from dumbbell.validity.check import faultless
from dumbbell.validity.files import OBSERVED

UNTIL_STATUS_NS = 10**9
AS_FOUND = (" mtu", " txqueuelen")  # a host owns them where somebody asks for them


def checks(run: Run) -> Iterator[Check]:
    """Of each host that left one."""
    for host in run.point.hosts:
        state = run.states[host]
        observed = read_json(run.raw(host, "measurement", OBSERVED))
        faults = ["nothing was read back"] if state is None else list(_faults(run, host, state, observed))
        yield faultless("state", host, [*faults, *_read_when(run, host, observed)])


def _read_when(run: Run, host: str, observed: Any) -> Iterator[str]:
    """The agent read its host's settings before the measurement, and again after it."""
    before, after = (dig(observed, when, "unix_ns") for when in ("before", "after"))
    t0, ended = run.t0_unix_ns("measurement"), dig(run.status(host, "measurement"), "unix_ns")
    if t0 is None or not all(isinstance(at, int) for at in (before, after, ended)):
        return
    end = t0 + run.point.phase("measurement").duration_ns
    if not before < t0 < end <= after <= ended + UNTIL_STATUS_NS:
        yield f"{OBSERVED} was read at {before} and {after}, and the measurement lasted from {t0} to {end}"


def _faults(run: Run, host: str, state: Any, observed: Any) -> Iterator[str]:
    point, known = run.point, documents.OwnedState if run.plan.schema_version > 1 else documents.State
    found = documents.faults(known, state, "state.json")
    yield from found
    if found:
        return
    planned = point.hosts[host]
    router = "routers" in planned.groups
    if len(state["nic"]) < (2 if router else 1):
        yield f"state.json: nic has {', '.join(state['nic'])} alone"
    if router and point.path is not None:
        yield from _path(point.path, state)
    modules = state["modules"]
    controls = planned.state.congestion_controls
    if set(controls) - {"reno"} and not modules["loaded"]:
        yield f"state.json: modules.loaded has none, and {', '.join(controls)} are asked"
    for names, of, whole in (
        (controls, "those of the flows", "allowed"),
        (modules["allowed"], "those allowed", "available"),
    ):
        if lacking := sorted(set(names) - set(modules[whole])):
            yield f"state.json: modules.{whole} lacks {', '.join(lacking)} of {of}"
    if run.plan.schema_version > 1:
        yield from _owned(state, planned.state.offloads)
    if isinstance(before := dig(observed, "before", "settings"), dict):
        yield from _unlike(state, before)
        for control in controls:
            module = f"tcp_{control}"
            if module not in modules["loaded"] and any(n.startswith(f"module {module} ") for n in before):
                yield f"state.json: modules.loaded lacks {module}, which the agent observed"


def _path(planned: PlannedPath, state: Mapping[str, Any]) -> Iterator[str]:
    path = state["path"]
    found = documents.faults(documents.EmulatedPath, path, "state.json.path")
    yield from found
    if found:
        return
    for name, _ in planned.ways:
        if lacking := [key for key in ("rate_bps", "delay_us", "loss", "queue") if key not in path[name]]:
            yield f"state.json: path.{name} lacks {', '.join(lacking)}"
    for of, devices in path["devices"].items():
        if devices["delay_line"] not in state["nic"]:
            yield f"state.json: the delay line {of} is {devices['delay_line']}, which is not in nic"


def _owned(state: Mapping[str, Any], offloads: Iterable[str]) -> Iterator[str]:
    """What a host owns was all asked, and is what the rest of the document has."""
    owned, asked = state["owned"], state.get("asked") or {}
    told: dict[str, Any] = dict(state["sysctl"])
    for device, nic in state["nic"].items():
        told |= {f"{device} {name}": nic[name] for name in ("mtu", "txqueuelen")}
        told |= {f"{device} feature {name}": (nic.get("offloads") or {}).get(name) for name in offloads}
    for name, value in told.items():
        if name not in owned and not name.endswith(AS_FOUND):
            yield f"state.json: owned has no {name}"
        elif name in owned and _text(owned[name][-1]) != _text(value):
            yield f"state.json: {name} is {value}, and {owned[name][-1]} in owned"
    if lacking := sorted((dig(asked, "sysctls") or {}).keys() - state["sysctl"].keys()):
        yield f"state.json: {', '.join(lacking)} of what was asked was not read back"
    for name, value in (dig(asked, "sysctls") or {}).items():
        if name in owned and _text(owned[name][0]) != _text(value):
            yield f"state.json: {name} is asked to be {value}, and {owned[name][0]} in owned"
    metrics = dig(asked, "tcp_metrics")
    if asked and (
        metrics not in ("flush", "keep") or (metrics == "flush") != bool(dig(state, "tcp_metrics", "flushed"))
    ):
        yield f"state.json: the cache of TCP metrics was to be {metrics}, and is {state['tcp_metrics']}"


def _unlike(state: Mapping[str, Any], observed: Mapping[str, Any]) -> Iterator[str]:
    """What the role read back, and the agent observed before it measured, by the agent's names."""
    told = {"kernel release": state["kernel"]} | state["sysctl"]
    for device, nic in state["nic"].items():
        told |= {f"{device} {name}": str(nic[name]) for name in ("mtu", "txqueuelen")}
    for module, about in state["modules"]["loaded"].items():
        parameters = {f"module {module} {name}": value for name, value in about["parameters"].items()}
        told |= parameters
        for name in observed:
            if name.startswith(f"module {module} ") and name not in parameters:
                yield f"state.json has no {name}, which the agent observed"
    for name, value in told.items():
        seen = observed.get(name)
        if seen is not None and _text(seen) != _text(value):
            yield f"{name} was {value} when it was read back, and {seen} when the agent observed it"


def _text(value: Any) -> str:
    """The kernel shows booleans as Y and N, and separates words by tabs."""
    return {"Y": "1", "N": "0"}.get(str(value), " ".join(str(value).split()))
