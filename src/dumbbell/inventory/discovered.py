"""A first inventory for hosts of which only their NICs are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]

LEFT, RIGHT = "198.18.1", "198.18.2"  # reserved for benchmarking: RFC 2544
SIDES = {"senders": ("left", LEFT, 11), "receivers": ("right", RIGHT, 21)}


def proposed(found: Mapping[str, Facts]) -> dict[str, dict[str, Any]]:
    """Groups with their hosts, by what each host's preflight read, in the order of the hosts.

    The host with most NICs, at least two beside the management's, is the router. One without is the archive,
    else the last one of four or more. The first half of the others are senders. Each host, by the name that
    it has itself, has ``named`` (as on the command line), ``management``, ``experiment`` (side to device and
    address), ``routes``, and ``nics`` with a line on each.
    """
    found = _by_their_names(found)
    free = {host: _free(facts) for host, facts in found.items()}
    rest = list(found)
    most = max(rest, key=lambda host: len(free[host]), default=None)
    router = most if most is not None and len(free[most]) > 1 else None
    rest = [host for host in rest if host != router]
    archive = next((host for host in rest if not free[host]), rest[-1] if len(found) > 3 else None)  # noqa: PLR2004
    rest = [host for host in rest if host != archive]
    half = (len(rest) + 1) // 2
    groups: dict[str, dict[str, Any]] = {"senders": {}, "receivers": {}, "routers": {}, "archives": {}}
    for group, hosts in (("senders", rest[:half]), ("receivers", rest[half:])):
        side, network, first = SIDES[group]
        other = {"left": RIGHT, "right": LEFT}[side]
        for i, host in enumerate(hosts):
            device = next(iter(free[host]), None)
            experiment = {side: {"device": device, "address": f"{network}.{first + i}/24"}} if device else {}
            routes = [{"to": f"{other}.0/24", "via": f"{network}.1"}] if router else []
            groups[group][host] = _host(found[host], experiment, routes)
    if router:
        both = zip(("left", "right"), free[router][:2], (LEFT, RIGHT), strict=True)
        experiment = {side: {"device": nic, "address": f"{network}.1/24"} for side, nic, network in both}
        groups["routers"][router] = _host(found[router], experiment, [])
    if archive:
        groups["archives"][archive] = _host(found[archive], {}, [])
    return groups


def _by_their_names(found: Mapping[str, Facts]) -> dict[str, Facts]:
    """The hosts by their own names, less the domain; those that share one by the name of the command line."""
    names = [facts["name"].partition(".")[0] for facts in found.values()]
    return {
        name if names.count(name) == 1 else host: {**facts, "named": host}
        for name, (host, facts) in zip(names, found.items(), strict=True)
    }


def _free(facts: Facts) -> list[str]:
    """NICs that could be the experiment's, the fastest first, before those without a link."""
    nics: Mapping[str, Facts] = facts["nics"]
    names = [name for name in nics if name not in facts["management"] and not nics[name]["master"]]
    return sorted(names, key=lambda name: (-(nics[name]["speed_mbps"] or 0), not nics[name]["carrier"], name))


def _host(facts: Facts, experiment: Facts, routes: Sequence[Facts]) -> dict[str, Any]:
    return {
        "named": facts["named"],
        "management": (facts["management"] or [None])[0],
        "experiment": experiment,
        "routes": list(routes),
        "nics": {name: _line(name, facts) for name in facts["nics"]},
    }


def _line(name: str, facts: Facts) -> str:
    """What a person wants to know of a NIC, in one line."""
    nic = facts["nics"][name]
    link = {True: "link", False: "no carrier", None: "down, so that speed and carrier are not known"}[
        nic["carrier"]
    ]
    words = [nic["driver"] or nic["kind"] or "no driver", link]
    words += [f"{nic['speed_mbps']} Mbit/s"] if nic["speed_mbps"] else []
    words += ["carries SSH"] if name in facts["management"] else []
    words += [f"part of {nic['master']}"] if nic["master"] else []
    words += [address for address in nic["addresses"] if not address.startswith("fe80:")]
    words += [f"configured by {by}" for by in facts["configured_by"].get(name, [])]
    words += [f"neighbours {', '.join(facts['neighbours'][name])}"] if facts["neighbours"].get(name) else []
    return ", ".join(words)
