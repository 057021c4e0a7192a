"""The requested state of a host: for each setting the scenario's value, else the inventory's.

The module ``point_state`` takes the result, and completes it with the values that were found on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import Any

from dumbbell.execution.reach import Trouble

Variables = Mapping[str, Any]

# Before the kernel forgets a neighbour's address it asks for it again, once a second, by default three times:
# arp(7). The answers pass the emulated path. If all are lost there, packets wait, and some are dropped.
NEIGHBOUR_REQUESTS = 100


def asked_of(
    variables: Variables,
    state: Mapping[str, Any] | None = None,
    path: Mapping[str, Any] | None = None,
    trim_us: int | None = None,
) -> dict[str, Any]:
    """The requested state of one host, as the module ``point_state`` takes it.

    ``variables`` are the inventory's variables or their defaults, including ``experiment_interfaces`` and
    ``experiment_routes``; ``state`` is the host's state in a plan, None for the inventory's state alone;
    ``path`` is the plan's path, None if the scenario has none; ``trim_us`` is the measured own delay of the
    path. Raises ValueError, with the name, if an interface or a route cannot be used.
    """
    of = state or {}
    interfaces = list(variables["experiment_interfaces"].values())
    devices = [each["device"] for each in interfaces]
    management = variables.get("management_interface")
    if management in devices:
        raise ValueError(f"{management} carries SSH and must not be one of the experiment interfaces")
    qdisc = of.get("qdisc") or variables["nic_qdisc"]
    routes = variables["nic_routes"] | (of.get("routes") or {})
    by_device = _routes(variables.get("experiment_routes") or [], interfaces)

    def over(name: str, default: str) -> Any:
        return variables[default] if of.get(name) is None else of[name]

    quiesced = variables["quiesce_units"] if variables["quiesce_enabled"] and state is not None else []
    return {
        "kernel": of.get("kernel"),
        "quiesced": [str(name) for name in quiesced],
        "modules": _modules(variables, of, qdisc),
        "interfaces": {
            each["device"]: {
                "mtu": over("mtu", "nic_mtu"),
                "txqueuelen": over("txqueuelen", "nic_txqueuelen"),
                "gso_max_segs": variables["nic_gso_max_segs"],
                "qdisc": qdisc,
                "addresses": [str(each["address"])],
                "routes": [{**route, **routes} for route in by_device[each["device"]]],
                "features": variables["nic_offloads"] | of.get("offloads", {}),
                **{
                    group: variables[f"nic_{group}"] for group in ("rings", "coalescing", "pause", "channels")
                },
            }
            for each in interfaces
        },
        "cpu": {
            "governor": variables["nic_cpu_governor"],
            "idle_latency_max_us": variables["nic_cpu_idle_latency_max_us"],
            "irq_cpus": variables["nic_irq_cpus"],
        },
        "sysctls": _neighbours(interfaces) | variables["sysctl_settings"] | of.get("sysctls", {}),
        "path": _path(variables, state, path, trim_us),
        "tcp_metrics": "flush",
    }


def asked_in(
    plan: Mapping[str, Any] | None, host: str, variables: Variables, trim_us: int | None = None
) -> dict[str, Any]:
    """The state of a host that a point's plan requests; without a plan, the inventory's.

    Raises :class:`Trouble` where :func:`asked_of` fails.
    """
    try:
        if plan is None:
            return asked_of(variables)
        return asked_of(variables, plan["hosts"][host]["state"], plan["path"], trim_us)
    except ValueError as error:
        raise Trouble(str(error)) from None


def clock_of(variables: Variables) -> dict[str, Any]:
    """How the host's clock is read, as the module ``point_state`` takes it."""
    return {
        "server": variables["clock_server"],
        "source": variables["clock_source"],
        "offset_max_ns": variables["clock_offset_max_ns"],
        "root_dispersion_max_ns": variables["clock_root_dispersion_max_ns"],
        "timeout_s": variables["clock_sync_timeout"],
        "cmdline": Path("/proc/cmdline").read_text(),
    }


def _modules(variables: Variables, of: Mapping[str, Any], qdisc: str | None) -> dict[str, Any]:
    """Modules to load. A qdisc would load its own module, but then its build would not be read back."""
    parameters = {**variables["modules_parameters"]}
    for name, values in of.get("modules", {}).items():
        parameters[name] = {**parameters.get(name, {}), **values}
    names = [
        *variables["modules_loaded"],
        *of.get("modules", {}),
        *(["sch_rapid"] if qdisc == "rapid" else []),
    ]
    # Congestion controls can be present without being loaded by name.
    names += [name for name in parameters if name.startswith("tcp_")]
    controls = [*variables["modules_congestion_controls"], *of.get("congestion_controls", [])]
    return {
        "loaded": {
            name: {key: str(value) for key, value in parameters.get(name, {}).items()}
            for name in dict.fromkeys(names)
        },
        "controls": list(dict.fromkeys(controls)),
        "allowed": list(variables["modules_allowed_congestion_controls"]),
    }


def _neighbours(interfaces: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sysctls by which a path that loses packets does not make hosts forget the addresses of neighbours."""
    return {
        f"net.ipv{ip_interface(str(each['address'])).version}.neigh.{each['device']}.ucast_solicit": (
            NEIGHBOUR_REQUESTS
        )
        for each in interfaces
    }


def _path(
    variables: Variables, state: Mapping[str, Any] | None, path: Mapping[str, Any] | None, trim_us: int | None
) -> dict[str, Any] | None:
    """The path of a host that connects left and right; None for other hosts."""
    devices = {side: of["device"] for side, of in variables["experiment_interfaces"].items()}
    if not devices.keys() >= {"left", "right"}:
        return None
    ways = {name: variables[f"path_{name}"] for name in ("forward", "reverse")}
    if state is not None:
        ways = {name: path[name] if path else None for name in ways}
    return ways | {
        "left": devices["left"],
        "right": devices["right"],
        "trim_us": variables["path_trim_us"] if trim_us is None else trim_us,
        "burst_us": variables["path_burst_us"],
    }


def _routes(
    routes: Iterable[Mapping[str, Any]], interfaces: Sequence[Mapping[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Routes, by the device whose network contains their gateway."""
    found: dict[str, list[dict[str, Any]]] = {each["device"]: [] for each in interfaces}
    for route in routes:
        gateway = ip_address(str(route["via"]))
        on = [each for each in interfaces if gateway in ip_interface(str(each["address"])).network]
        if not on:
            raise ValueError(
                f"the route to {route['to']} has the gateway {gateway}, which is on no experiment network"
            )
        found[on[0]["device"]].append(dict(route))
    return found
