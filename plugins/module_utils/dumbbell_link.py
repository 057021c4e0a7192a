"""Interfaces: parse `ip -j` and `tc -j`, compare with the request, and make the commands."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Mapping, Sequence
from ipaddress import ip_interface, ip_network
from typing import Any

State = dict[str, Any]
Command = list[str]
Route = dict[str, Any]

DEFAULT = {4: "0.0.0.0/0", 6: "::/0"}
QDISCS = ("pfifo_fast", "pfifo", "bfifo", "fq", "fq_codel", "mq", "rapid")
INGRESS = {"ingress", "clsact"}  # of incoming packets, whatever the root
ETH_HLEN = 14  # include/uapi/linux/if_ether.h
# Sizes that can be requested of an interface, by the words that set them (ip-link(8)), and their keys in
# `ip -j`. A new size is one line here; the unit is the kernel's.
SIZES = {
    "mtu": "mtu",  # bytes
    "txqueuelen": "txqlen",  # packets
    "gso_max_segs": "gso_max_segs",  # segments
}
ABSENT = {"txqueuelen": 0}  # the value where `ip -j` does not show it
ROUTE_OPTIONS = ("quickack", "tcp_usec_ts")
USEC_TS = 1 << 4  # RTAX_FEATURE_TCP_USEC_TS of include/uapi/linux/rtnetlink.h
USEC_TS_SINCE = (6, 7)  # Linux


def parse(link: Mapping[str, Any], routes: Sequence[Mapping[str, Any]]) -> State:
    """State of an interface from its element of `ip -j -d address` and from `ip -j route show dev NAME`."""
    return {
        "name": link["ifname"],
        "up": "UP" in link["flags"],
        **{name: link.get(key, ABSENT.get(name)) for name, key in SIZES.items()},
        "addresses": sorted(f"{info['local']}/{info['prefixlen']}" for info in link.get("addr_info", [])),
        "routes": sorted(
            (
                canonical_route(route["dst"], route["gateway"], **route_options(route))
                for route in routes
                if "gateway" in route
            ),
            key=lambda route: (route["to"], route["via"]),
        ),
    }


def parse_qdisc(dump: Sequence[Mapping[str, Any]]) -> State:
    """Kind and options of the root qdisc in `tc -j qdisc show dev NAME`, and kinds of those below it.

    A device that was never used has none.
    """
    root = next((qdisc for qdisc in dump if qdisc.get("root")), {"kind": "noop"})
    leaves = sorted({qdisc["kind"] for qdisc in dump if not qdisc.get("root")} - INGRESS)
    return {"qdisc": root["kind"], "qdisc_options": root.get("options", {}), "qdisc_leaves": leaves}


def canonical_address(address: str) -> str:
    """An address as the kernel writes it, always with its prefix length; ValueError if it is invalid."""
    return str(ip_interface(address))


def canonical_route(to: str, via: str, **options: bool | None) -> Route:
    """A route with its destination as a network; iproute2 writes `default` and bare host addresses."""
    gateway = ip_interface(via).ip
    to = DEFAULT[gateway.version] if to == "default" else to
    asked = {key: value for key, value in options.items() if value is not None}
    return {"to": str(ip_network(to)), "via": str(gateway), **asked}


def route_options(route: Mapping[str, Any]) -> dict[str, bool]:
    """Options of a route in `ip -j route`; iproute2 before 6.8 has no name for this feature."""
    (metrics,) = route.get("metrics", [{}])
    usec_ts = "tcp_usec_ts" in metrics or int(str(metrics.get("features", 0)), 0) & USEC_TS
    on = {"quickack": metrics.get("quickack"), "tcp_usec_ts": usec_ts}
    return {option: True for option in ROUTE_OPTIONS if on[option]}


def same_route(route: Route, routes: Sequence[Route]) -> Route | None:
    """The route to the same network by the same gateway, or None."""
    return next((each for each in routes if each["to"] == route["to"] and each["via"] == route["via"]), None)


def has_route(asked: Route, routes: Sequence[Route]) -> bool:
    """Whether a route with the requested options exists; a route only has the options that are on."""
    there = same_route(asked, routes)
    return there is not None and all(there.get(key, False) == value for key, value in asked.items())


def canonical(asked: Mapping[str, Any]) -> State:
    """The request in the form that `parse` gives, without unset keys."""
    state = {key: value for key, value in asked.items() if value is not None}
    if "addresses" in state:
        state["addresses"] = sorted({canonical_address(address) for address in state["addresses"]})
    if "routes" in state:
        unique = {tuple(canonical_route(**route).items()) for route in state["routes"]}
        state["routes"] = [dict(route) for route in sorted(unique)]
    return state


def mismatches(asked: State, found: State) -> dict[str, tuple[Any, Any]]:
    """Name to (requested, found). Additional addresses and routes are no mismatch."""
    wrong = {}
    for key, value in asked.items():
        there = found[key]
        if key == "routes":
            reached = all(has_route(route, there) for route in value)
        else:
            reached = there == value or (isinstance(value, list) and set(value) <= set(there))
        if not reached:
            wrong[key] = (value, there)
    limit = qdisc_limit(asked, found)
    if limit is not None and (there := found["qdisc_options"].get("limit")) != limit:
        wrong["limit of the qdisc"] = (limit, there)
    return wrong


def qdisc_limit(asked: State, found: State) -> int | None:
    """Limit of a pfifo (packets) or bfifo (bytes) that the kernel creates: net/sched/sch_fifo.c."""
    will = found | asked
    if asked.get("qdisc") == "pfifo":
        return int(will["txqueuelen"])
    if asked.get("qdisc") == "bfifo":
        return int(will["txqueuelen"] * (will["mtu"] + ETH_HLEN))
    return None


def plan(asked: State, found: State) -> list[Command]:
    """Commands from `found` to `asked`: sizes, then the qdisc that uses them; routes once the link is up."""
    name = found["name"]
    wrong = mismatches(asked, found)
    commands = []
    for key in sorted(SIZES, key=lambda size: size != "txqueuelen"):  # txqueuelen first: new qdiscs use it
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
        if not has_route(route, found["routes"]):
            # Only requested options change.
            will = (same_route(route, found["routes"]) or {}) | route
            make = ["ip", "route", "replace", route["to"], "via", route["via"], "dev", name]
            quickack = ["quickack", "1"] if will.get("quickack") else []
            usec_ts = ["features", "tcp_usec_ts"] if will.get("tcp_usec_ts") else []
            commands.append([*make, *quickack, *usec_ts])
    return commands


def undo(was: State, now: State) -> list[Command]:
    """Commands from `now` back to `was`; later additions are removed."""
    name = now["name"]
    commands = []
    for route in now["routes"]:
        if not same_route(route, was["routes"]):
            commands.append(["ip", "route", "del", route["to"], "via", route["via"], "dev", name])
    for address in now["addresses"]:
        interface = ip_interface(address)
        # The kernel creates and removes these by itself.
        own = interface.version == 6 and interface.is_link_local  # noqa: PLR2004
        if address not in was["addresses"] and not own:
            commands.append(["ip", "address", "del", address, "dev", name])
    asked = {key: value for key, value in was.items() if value is not None}
    asked["routes"] = [dict.fromkeys(ROUTE_OPTIONS, False) | route for route in was["routes"]]
    return commands + plan(asked, now)


def predict(asked: State, found: State) -> State:
    """The state after the plan, in which lists are extended rather than replaced."""
    after = found | asked
    have = found["addresses"]
    after["addresses"] = have + [each for each in asked.get("addresses", []) if each not in have]
    wanted = asked.get("routes", [])
    routes = [route | (same_route(route, wanted) or {}) for route in found["routes"]]
    routes += [route for route in wanted if not same_route(route, found["routes"])]
    after["routes"] = [{key: value for key, value in route.items() if value} for route in routes]
    if "qdisc" in asked:
        limit = qdisc_limit(asked, found)
        kept = found["qdisc_options"] if found["qdisc"] == asked["qdisc"] else {}
        after["qdisc_options"] = kept if limit is None else {"limit": limit}
        after["qdisc_leaves"] = found["qdisc_leaves"] if found["qdisc"] == asked["qdisc"] else []
    return after


# iproute2 before 6.8 cannot set this feature, whatever the kernel: such a route is set over netlink.

NLMSG_ERROR, RTM_NEWROUTE = 2, 24
NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_CREATE = 0x1, 0x4, 0x100, 0x400
RT_TABLE_MAIN, RTPROT_BOOT, RT_SCOPE_UNIVERSE, RTN_UNICAST = 254, 3, 0, 1
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_METRICS = 1, 4, 5, 8
RTAX_FEATURES, RTAX_QUICKACK = 12, 15
NLMSGHDR = struct.Struct("=IHHII")
RTMSG = struct.Struct("=BBBBBBBBI")
RTATTR = struct.Struct("=HH")


def needs_netlink(command: Command) -> bool:
    """Whether iproute2 may not know a command of `plan`."""
    return command[:3] == ["ip", "route", "replace"] and "features" in command


def route_request(command: Command, ifindex: int) -> bytes:
    """The netlink request for such a command."""
    to, via = ip_network(command[3]), ip_interface(command[command.index("via") + 1]).ip
    quickack = _attribute(RTAX_QUICKACK, struct.pack("=I", 1)) if "quickack" in command else b""
    features = _attribute(RTAX_FEATURES, struct.pack("=I", USEC_TS))
    body = RTMSG.pack(
        {4: 2, 6: 10}[to.version],  # AF_INET, AF_INET6
        *(to.prefixlen, 0, 0),
        *(RT_TABLE_MAIN, RTPROT_BOOT, RT_SCOPE_UNIVERSE, RTN_UNICAST, 0),
    )
    body += _attribute(RTA_DST, to.network_address.packed) + _attribute(RTA_GATEWAY, via.packed)
    body += _attribute(RTA_OIF, struct.pack("=I", ifindex)) + _attribute(RTA_METRICS, quickack + features)
    flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_REPLACE | NLM_F_CREATE
    return NLMSGHDR.pack(NLMSGHDR.size + len(body), RTM_NEWROUTE, flags, 1, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    return RTATTR.pack(RTATTR.size + len(value), kind) + value + bytes(-len(value) % 4)


def refusal(answer: bytes) -> str:
    """Why the kernel refused a request, or ''."""
    (code,) = struct.unpack_from("=i", answer, NLMSGHDR.size)
    return f"{os.strerror(-code)} ({errno.errorcode.get(-code, code)})" if code else ""
