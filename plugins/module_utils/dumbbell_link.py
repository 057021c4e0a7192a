"""Interfaces: parse `ip -j` and `tc -j`, compare with what is asked, and render the commands between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_interface, ip_network
from typing import Any

State = dict[str, Any]
Command = list[str]

DEFAULT = {4: "0.0.0.0/0", 6: "::/0"}
QDISCS = ("pfifo_fast", "pfifo", "bfifo", "fq", "fq_codel", "mq", "rapid")
ETH_HLEN = 14  # include/uapi/linux/if_ether.h


def parse(link: Mapping[str, Any], routes: Sequence[Mapping[str, Any]]) -> State:
    """State of an interface from its element of `ip -j -d address` and from `ip -j route show dev NAME`."""
    return {
        "name": link["ifname"],
        "up": "UP" in link["flags"],
        "mtu": link["mtu"],
        "txqueuelen": link.get("txqlen", 0),
        "gso_max_segs": link.get("gso_max_segs"),
        "addresses": sorted(f"{info['local']}/{info['prefixlen']}" for info in link.get("addr_info", [])),
        "routes": sorted(
            (canonical_route(route["dst"], route["gateway"]) for route in routes if "gateway" in route),
            key=lambda route: (route["to"], route["via"]),
        ),
    }


def parse_qdisc(dump: Sequence[Mapping[str, Any]]) -> State:
    """Kind and options of the root qdisc in `tc -j qdisc show dev NAME`; a device never used shows none."""
    root = next((qdisc for qdisc in dump if qdisc.get("root")), {"kind": "noop"})
    return {"qdisc": root["kind"], "qdisc_options": root.get("options", {})}


def canonical_address(address: str) -> str:
    """An address as the kernel writes it, always with its prefix length; ValueError when it is none."""
    return str(ip_interface(address))


def canonical_route(to: str, via: str) -> dict[str, str]:
    """A route with its destination as a network; iproute2 writes `default` and bare host addresses."""
    gateway = ip_interface(via).ip
    to = DEFAULT[gateway.version] if to == "default" else to
    return {"to": str(ip_network(to)), "via": str(gateway)}


def canonical(asked: Mapping[str, Any]) -> State:
    """What is asked for, without the keys left open and in the form that `parse` gives."""
    state = {key: value for key, value in asked.items() if value is not None}
    if "addresses" in state:
        state["addresses"] = sorted({canonical_address(address) for address in state["addresses"]})
    if "routes" in state:
        unique = {tuple(canonical_route(**route).items()) for route in state["routes"]}
        state["routes"] = [dict(route) for route in sorted(unique)]
    return state


def mismatches(asked: State, found: State) -> dict[str, tuple[Any, Any]]:
    """Name to (asked, found). Addresses and routes beyond those asked for are no mismatch."""
    wrong = {}
    for key, value in asked.items():
        there = found[key]
        if there != value and not (isinstance(value, list) and all(item in there for item in value)):
            wrong[key] = (value, found[key])
    limit = qdisc_limit(asked, found)
    if limit is not None and (there := found["qdisc_options"].get("limit")) != limit:
        wrong["limit of the qdisc"] = (limit, there)
    return wrong


def qdisc_limit(asked: State, found: State) -> int | None:
    """Limit that the kernel gives a pfifo (packets) or bfifo (bytes) which it makes: net/sched/sch_fifo.c."""
    will = found | asked
    match asked.get("qdisc"):
        case "pfifo":
            return int(will["txqueuelen"])
        case "bfifo":
            return int(will["txqueuelen"] * (will["mtu"] + ETH_HLEN))
    return None


def plan(asked: State, found: State) -> list[Command]:
    """Commands from `found` to `asked`: sizes, then the qdisc that takes them; routes once the link is up."""
    name = found["name"]
    wrong = mismatches(asked, found)
    commands = []
    for key in ("txqueuelen", "mtu", "gso_max_segs"):
        if key in wrong:
            commands.append(["ip", "link", "set", "dev", name, key, str(asked[key])])
    for address in asked.get("addresses", []):
        if address not in found["addresses"]:
            commands.append(["ip", "address", "add", address, "dev", name])
    if "up" in wrong:
        commands.append(["ip", "link", "set", "dev", name, "up" if asked["up"] else "down"])
    if wrong.keys() & {"qdisc", "limit of the qdisc"}:
        limit = qdisc_limit(asked, found)
        make = ["tc", "qdisc", "replace", "dev", name, "root", asked["qdisc"]]
        commands.append(make if limit is None else [*make, "limit", str(limit)])
    for route in asked.get("routes", []):
        if route not in found["routes"]:
            commands.append(["ip", "route", "replace", route["to"], "via", route["via"], "dev", name])
    return commands


def undo(was: State, now: State) -> list[Command]:
    """Commands from `now` back to `was`: what has come since is removed, too."""
    name = now["name"]
    commands = []
    for route in now["routes"]:
        if route not in was["routes"]:
            commands.append(["ip", "route", "del", route["to"], "via", route["via"], "dev", name])
    for address in now["addresses"]:
        interface = ip_interface(address)
        # The kernel makes and removes these by itself.
        own = interface.version == 6 and interface.is_link_local  # noqa: PLR2004
        if address not in was["addresses"] and not own:
            commands.append(["ip", "address", "del", address, "dev", name])
    return commands + plan({key: value for key, value in was.items() if value is not None}, now)


def predict(asked: State, found: State) -> State:
    """The state after the plan, lists being ensured rather than replaced."""
    after = found | asked
    for key in ("addresses", "routes"):
        after[key] = found[key] + [item for item in asked.get(key, []) if item not in found[key]]
    if "qdisc" in asked:
        limit = qdisc_limit(asked, found)
        kept = found["qdisc_options"] if found["qdisc"] == asked["qdisc"] else {}
        after["qdisc_options"] = kept if limit is None else {"limit": limit}
    return after
