"""An interface: the settings of `dumbbell_link`, and the groups of `dumbbell_ethtool`."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_interface
from typing import Any

from .. import dumbbell_ethtool as ethtool
from .. import dumbbell_link as link
from ..dumbbell_baseline import Setting
from .part import Command, Host, Ledger, Owned, Part

# Features that one of ethtool's names stands for: requesting the name requests all of them.
MEMBERS = {
    "tx-checksumming": "tx-checksum-",
    "scatter-gather": "tx-scatter-gather",
    "tcp-segmentation-offload": "tx-tcp",
}


def parts(device: str, of: Mapping[str, Any], ledger: Ledger, host: Host, module: Any) -> list[Part]:
    """The parts of an interface: one for sizes, qdisc, addresses and routes, and one per group of ethtool."""
    was = ledger.get(Setting("link", device)) or {}
    asked = {key: was.get(key) if of.get(key) is None else of[key] for key in link.SIZES}
    asked["qdisc"] = of.get("qdisc")
    asked["addresses"] = [*was.get("addresses", []), *of.get("addresses", [])]
    defaults = dict.fromkeys(link.ROUTE_OPTIONS, False)
    routes = {(each["to"], each["via"]): {**defaults, **each} for each in was.get("routes", [])}
    for each in of.get("routes", []):
        canonical = link.canonical_route(each["to"], each["via"])
        options = {key: bool(each.get(key)) for key in link.ROUTE_OPTIONS}
        routes[canonical["to"], canonical["via"]] = {**canonical, **options}
    asked["routes"] = list(routes.values())
    wants = link.canonical({**asked, "up": True})

    def surplus(found: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
        """Addresses and routes that an earlier run added."""
        addresses = [each for each in found["addresses"] if each not in wants["addresses"] and not _own(each)]
        return addresses, [each for each in found["routes"] if not link.same_route(each, wants["routes"])]

    def plan(found: Any) -> list[Command]:
        addresses, gone = surplus(found)
        commands = [["ip", "route", "del", each["to"], "via", each["via"], "dev", device] for each in gone]
        commands += [["ip", "address", "del", each, "dev", device] for each in addresses]
        return [*commands, *link.plan(wants, found)]

    def owned(found: Any) -> Owned:
        wrong = link.mismatches(wants, found)
        settings: Owned = {f"{device} {key}": (value, value) for key, value in wants.items()}
        settings.update({f"{device} {key}": pair for key, pair in wrong.items()})
        addresses, gone = surplus(found)
        if addresses:
            settings[f"{device} addresses"] = (wants["addresses"], found["addresses"])
        if gone:
            settings[f"{device} routes"] = (wants["routes"], found["routes"])
        return settings

    def report(found: Any) -> dict[str, Any]:
        keys = (*link.SIZES, "qdisc", "qdisc_options", "qdisc_leaves", "routes")
        return {"nic": {device: {key: found[key] for key in keys}}}

    def refuse(found: Any, commands: list[Command]) -> None:
        module.refuse_commands(commands)

    names = [name for name in ethtool.SHOW if of.get(name) or Setting(name, device) in ledger]
    return [
        Part(device, lambda: host.link(device), plan, owned, report, refuse),
        *(group(device, name, of.get(name) or {}, ledger, host) for name in names),
    ]


def _own(address: str) -> bool:
    """Whether the kernel created an address by itself."""
    interface = ip_interface(address)
    return interface.version == 6 and interface.is_link_local  # noqa: PLR2004


def group(device: str, group: str, of: Mapping[str, Any], ledger: Ledger, host: Host) -> Part:
    """A group of ethtool. A feature that was on may depend on another one that is requested off."""
    asked = {name: ethtool.canonical(name, value) for name, value in of.items()}
    names = {ethtool.SHORT_NAMES.get(name, name) for name in asked} if group == "features" else set(asked)
    stands_for = tuple(MEMBERS[name] for name in names if name in MEMBERS)
    was = {
        name: value
        for name, value in (ledger.get(Setting(group, device)) or {}).items()
        if name not in names and not (stands_for and name.startswith(stands_for))
    }

    def read() -> Any:
        text = host.group(device, group)
        found = ethtool.parse(group, text)
        wants = ethtool.requested(text) if group == "features" else {}
        return ethtool.find(group, asked, found), {
            name: ethtool.Parameter(wants.get(name, found[name].value), found[name].fixed, found[name].most)
            for name in was
            if name in found
        }

    def both(found: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        of_asked, of_found = found
        return {**{name: was[name] for name in of_found}, **asked}, {**of_found, **of_asked}

    def plan(found: Any) -> list[Command]:
        return list(ethtool.plan(device, group, *both(found)))

    def owned(found: Any) -> Owned:
        called = ethtool.GROUPS[group].one
        wanted, have = both(found)
        return {f"{device} {called} {name}": (value, have[name].value) for name, value in wanted.items()}

    def report(found: Any) -> dict[str, Any]:
        key = "offloads" if group == "features" else group
        values = {name: each.value for name, each in found[0].items()}
        return {"nic": {device: {key: values}}} if values or group == "features" else {}

    return Part(f"{group} of {device}", read, plan, owned, report)
