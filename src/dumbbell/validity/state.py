"""The state of each host was read back completely, and values that are reported twice agree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dumbbell.facts.check import Check, faultless
from dumbbell.facts.documents import faults
from dumbbell.facts.state_document import GROUPS, SIZES, EmulatedPath, OwnedState, State
from dumbbell.plan import PlannedPath
from dumbbell.plan.document import State as HostState
from dumbbell.run.content import Run, dig
from dumbbell.run.record import read_json
from dumbbell.validity.files import OBSERVED

ALLOWED = "net.ipv4.tcp_allowed_congestion_control"
CPU_LIST = "smp_affinity_list"  # the kernel writes it in its own form
SYSCTL = re.compile(r"(?:net|kernel|vm)\.\S+$")
WAYS = ("forward", "reverse")


def checks(run: Run) -> Iterator[Check]:
    """A check of each host that has a state."""
    for host in run.point.hosts:
        state = run.states[host]
        observed = read_json(run.raw(host, "measurement", OBSERVED))
        faults = ["nothing was read back"] if state is None else list(_faults(run, host, state, observed))
        yield faultless("state", host, faults)


def _faults(run: Run, host: str, state: Any, observed: Any) -> Iterator[str]:
    point, known = run.point, OwnedState if run.plan.schema_version > 1 else State
    found = faults(known, state, "state.json")
    yield from found
    if found:
        return
    planned = point.hosts[host]
    router = host in run.routers
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
        yield from _owned(state, planned.state)
    if isinstance(before := dig(observed, "before", "settings"), dict):
        yield from _unlike(state, before)
        for control in controls:
            module = f"tcp_{control}"
            if module not in modules["loaded"] and any(n.startswith(f"module {module} ") for n in before):
                yield f"state.json: modules.loaded lacks {module}, which the agent observed"


def _path(planned: PlannedPath, state: Mapping[str, Any]) -> Iterator[str]:
    path = state["path"]
    found = faults(EmulatedPath, path, "state.json.path")
    yield from found
    if found:
        return
    for name, _ in planned.ways:
        if lacking := [key for key in ("rate_bps", "delay_us", "loss", "queue") if key not in path[name]]:
            yield f"state.json: path.{name} lacks {', '.join(lacking)}"
    for of, devices in path["devices"].items():
        if devices["delay_line"] not in state["nic"]:
            yield f"state.json: the delay line {of} is {devices['delay_line']}, which is not in nic"


def _owned(state: Mapping[str, Any], asked: HostState) -> Iterator[str]:
    """Contradictions between the owned settings and the rest of the document."""
    owned, path = state["owned"], state["path"] or {}
    for key, names in (
        ("sysctl", {*asked.sysctls, *(name for name in owned if SYSCTL.match(name))}),
        ("cpu", {name for name in owned if name.startswith("/")}),
    ):
        if lacking := sorted(names - state[key].keys()):
            yield f"state.json: {key} has no {', '.join(lacking)}"
    told: dict[str, Any] = {**state["sysctl"], ALLOWED: " ".join(state["modules"]["allowed"])}
    told |= {file: value for file, value in state["cpu"].items() if not file.endswith(CPU_LIST)}
    told |= {f"module {module}": "loaded" for module in state["modules"]["loaded"]}
    for module, values in asked.modules.items():
        told |= {f"{name} of {module.replace('-', '_')}": value for name, value in values.items()}
    for device, nic in state["nic"].items():
        told |= {f"{device} {name}": nic[name] for name in SIZES}
        for group in GROUPS.keys() & nic.keys():
            told |= {f"{device} {GROUPS[group]} {name}": value for name, value in nic[group].items()}
        told |= {f"{device} feature {name}": nic["offloads"].get(name) for name in asked.offloads}
        if f"{device} qdisc" in owned:  # if requested; otherwise it is as found, or the path's
            told[f"{device} qdisc"] = nic["qdisc"]
    for name, value in told.items():
        if name in owned and _text(_found(owned, name)) != _text(value):
            yield f"state.json: {name} is {_text(value)}, and {_found(owned, name)} in owned"
    wanted = {*told, *state["cpu"], *(f"path {way}" for way in WAYS if way in path)}
    for device, nic in state["nic"].items():
        wanted |= {f"{device} {name}" for name in ("addresses", "routes", "up")}
        if f"{device} qdisc" not in owned and not any(path.get(way) for way in WAYS):
            wanted.add(f"qdisc of {device}")
        if _routes(_found(owned, f"{device} routes")) != _routes(nic["routes"]):
            yield f"state.json: routes of {device} are not those in owned"
    if lacking := sorted(wanted - owned.keys()):
        yield f"state.json: owned has no {', '.join(lacking)}"


def _found(owned: Mapping[str, Any], name: str) -> Any:
    """The found value: the second of requested and found."""
    pair = owned.get(name)
    return pair[-1] if pair else None


def _routes(routes: Any) -> list[list[str]]:
    """Routes as lists that can be compared: an option that is off may be left out."""
    if not isinstance(routes, list) or not all(isinstance(route, dict) for route in routes):
        return [["unreadable"]]
    return sorted(sorted(f"{key} {value}" for key, value in route.items() if value) for route in routes)


def _unlike(state: Mapping[str, Any], observed: Mapping[str, Any]) -> Iterator[str]:
    """Contradictions between the role's and the agent's readings before the measurement, by agents' names."""
    told = {"kernel release": state["kernel"]} | state["sysctl"]
    for device, nic in state["nic"].items():
        told |= {f"{device} {name}": nic[name] for name in ("mtu", "txqueuelen")}
        told |= {f"qdisc {device} root": nic["qdisc"]} if nic["qdisc"] != "noop" else {}
    for module, about in state["modules"]["loaded"].items():
        parameters = {f"module {module} {name}": value for name, value in about["parameters"].items()}
        told |= parameters
        for name in observed:
            if name.startswith(f"module {module} ") and name not in parameters:
                yield f"state.json has no {name}, which the agent observed"
    for name, value in told.items():
        seen = observed.get(name, observed.get(_default(name)))
        if name.startswith("qdisc ") and seen:
            seen = seen.split()[0]  # without its handle and options
        if seen is not None and _text(seen) != _text(value):
            yield f"{name} was {_text(value)} when it was read back, and {seen} when the agent observed it"


def _default(name: str) -> str:
    """The sysctl with the value of an interface for which agents report none."""
    return re.sub(r"^(net\.ipv[46]\.(?:conf|neigh))\..+\.", r"\1.default.", name)


def _text(value: Any) -> str:
    """A value as text for comparison: the kernel shows booleans as Y and N, and separates words by tabs."""
    return {"Y": "1", "N": "0"}.get(str(value), " ".join(str(value).split()))
