"""What is wrong with an inventory, found before any host is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ruamel.yaml import YAML

from dumbbell.inventory import InventoryHost, narrow_router
from dumbbell.units import LEAST_MTU_BYTES, MOST_MTU_BYTES

Groups = Mapping[str, Sequence[str]]
Variables = Mapping[str, Any]
Address = IPv4Interface | IPv6Interface

ASKED = {"run_at_most", "run_repetitions", "run_seed"}  # of a playbook that runs a scenario, by -e
OWN = {"management_interface", "experiment_interfaces", "experiment_routes"}
FORWARDING = {4: "net.ipv4.ip_forward", 6: "net.ipv6.conf.all.forwarding"}  # by version of IP
STORE = {"influxdb_admin_username", "influxdb_admin_token", "influxdb_ca", "influxdb_writer_username"}


def known_variables(roles: Path) -> dict[str, set[str]]:
    """Role to the variables that it takes, by its ``meta/argument_specs.yml``."""
    yaml = YAML(typ="safe")
    found = {}
    for file in sorted(roles.glob("*/meta/argument_specs.yml")):
        entry_points = yaml.load(file.read_text())["argument_specs"].values()
        found[file.parts[-3]] = {name for entry in entry_points for name in entry.get("options", {})}
    return found


def problems(
    groups: Groups, hosts: Mapping[str, Variables], store: Variables, roles: Mapping[str, set[str]]
) -> list[str]:
    """Every reason why no testbed can be made of this inventory, by host; none if it can.

    ``hosts`` are the variables of each; ``store`` those of the controller that say where samples are kept:
    nowhere, if the URL is null. Values of secrets are not needed, only their names.
    """
    testbed = {name: hosts[name] for name in groups.get("testbed", [])}
    return [
        *_groups(groups, stores=store.get("influxdb_url", "") is not None),
        *(f"{name}: {text}" for name, of in testbed.items() for text in _host(name, of, groups)),
        *(f"{name}: {text}" for name, of in testbed.items() for text in _misspelt(of, roles)),
        *_networks(testbed),
        *_pairs(groups, testbed),
        *_store(store),
        *_archive(groups, testbed, store),
    ]


def _groups(groups: Groups, *, stores: bool) -> Iterator[str]:
    for name in ("testbed", "senders", "receivers", *(["archives"] if stores else [])):
        if not groups.get(name):
            yield f"no host in the group {name}"
    if len(archives := groups.get("archives", [])) > 1:
        yield f"one archive is needed, and the group archives has {', '.join(archives)}"
    if len(routers := groups.get("routers", [])) > 1:
        names = ", ".join(routers)
        yield f"one router is possible, and the group routers has {names}: each emulates the whole path"
    for name in ("senders", "receivers", "routers", "archives"):
        for host in groups.get(name, []):
            if host not in groups.get("testbed", []):
                yield f"{host}: is in the group {name}, but not in the group testbed"


def _host(name: str, of: Variables, groups: Groups) -> Iterator[str]:
    management = of.get("management_interface")
    if not management:
        yield "management_interface is not named: it carries SSH and is never shaped"
    if not of.get("ansible_host"):
        yield "ansible_host is missing: its address on the management network"
    interfaces = of.get("experiment_interfaces", {})
    devices = [each.get("device") for each in interfaces.values()]
    if management in devices:
        yield f"{management} carries SSH and must not be one of the experiment_interfaces"
    for device in {each for each in devices if devices.count(each) > 1}:
        yield f"experiment_interfaces has {device} more than once"
    for side, each in interfaces.items():
        if not each.get("device"):
            yield f"experiment_interfaces.{side} has no device"
        if _interface(each) is None:
            yield (
                f"experiment_interfaces.{side}.address: {each.get('address')!r} is no address with prefix "
                "length, such as 198.18.1.11/24"
            )
    yield from _sizes(of)
    for group in ("senders", "receivers"):
        if name in groups.get(group, []) and not interfaces:
            yield f"is one of the {group}, but has no experiment_interfaces"
    if name in groups.get("routers", []):
        yield from _router(of, interfaces)
    for route in of.get("experiment_routes") or []:
        yield from _route(route, [_interface(each) for each in interfaces.values()])


def _sizes(of: Variables) -> Iterator[str]:
    """What the planner counts packets by."""
    if _mtu(of) is None:
        allowed = f"a whole number of bytes from {LEAST_MTU_BYTES} to {MOST_MTU_BYTES}"
        yield f"nic_mtu is {of['nic_mtu']!r}: it is {allowed}"
    for feature in of.get("nic_offloads") or {}:
        if short := _LONG_NAMES.get(feature):
            yield f"nic_offloads: call {feature} {short}, the name that scenarios have for it"


# ethtool's other names for what the planner has to know of.
_LONG_NAMES = {
    "tcp-segmentation-offload": "tso",
    "generic-segmentation-offload": "gso",
    "generic-receive-offload": "gro",
    "large-receive-offload": "lro",
}


def _mtu(of: Variables) -> int | None:
    """Largest packet of its experiment interfaces; None if that is none."""
    asked = of.get("nic_mtu", InventoryHost().nic_mtu)
    try:
        found = int(asked)
    except (TypeError, ValueError):
        return None
    return found if LEAST_MTU_BYTES <= found <= MOST_MTU_BYTES and not isinstance(asked, bool) else None


def _router(of: Variables, interfaces: Variables) -> Iterator[str]:
    if lacking := {"left", "right"} - set(interfaces):
        yield f"is a router, but its experiment_interfaces lack {', '.join(sorted(lacking))}"
    for sysctl in forwarding(interfaces):
        if of.get("sysctl_settings", {}).get(sysctl) != 1:
            yield f"is a router, but sysctl_settings does not set {sysctl} to 1"
    if of.get("nic_qdisc"):
        yield "is a router, whose interfaces carry the path: nic_qdisc is for other hosts"


def forwarding(interfaces: Variables) -> list[str]:
    """The sysctls by which a router with these ``experiment_interfaces`` forwards."""
    versions = {address.version for each in interfaces.values() if (address := _interface(each))}
    return [sysctl for version, sysctl in FORWARDING.items() if version in versions]


def _route(route: Mapping[str, Any], own: Sequence[Address | None]) -> Iterator[str]:
    try:
        ip_network(route["to"])
        via = ip_address(route["via"])
    except (KeyError, TypeError, ValueError) as error:
        yield f"experiment_routes: {dict(route)} is no route with to and via: {error}"
        return
    if not any(each and via in each.network for each in own):
        yield f"experiment_routes: the gateway {via} is on the network of none of its experiment_interfaces"


def _interface(each: Mapping[str, Any]) -> Address | None:
    try:
        return ip_interface(each["address"]) if "/" in str(each["address"]) else None
    except (KeyError, ValueError):
        return None


def _misspelt(of: Variables, roles: Mapping[str, set[str]]) -> Iterator[str]:
    """Variables that look like ours, but are not; facts that roles set end in ``_measured``."""
    known = ASKED | OWN | STORE | set().union(*roles.values())
    for name in sorted(of):
        if name in known or name.endswith("_measured"):
            continue
        like = get_close_matches(name, known, n=1, cutoff=0.6)
        ours = any(name.startswith(f"{role}_") for role in (*roles, "experiment"))
        if ours or get_close_matches(name, OWN, n=1, cutoff=0.85):
            yield f"no role knows the variable {name}" + (f"; did you mean {like[0]}?" if like else "")


def _networks(testbed: Mapping[str, Variables]) -> Iterator[str]:
    owners: dict[str, str] = {}
    sides: dict[str, tuple[str, Address]] = {}
    for host, of in testbed.items():
        named = {"ansible_host": str(of.get("ansible_host", ""))}
        for side, each in of.get("experiment_interfaces", {}).items():
            if (address := _interface(each)) is None:
                continue
            named[f"experiment_interfaces.{side}"] = str(address.ip)
            first, other = sides.setdefault(side, (host, address))
            if address.network != other.network:
                yield (
                    f"{host}: {side} is {address.network}, but {other.network} on {first}: "
                    "all of one name share a network"
                )
        for key, text in named.items():
            if text and (owner := owners.setdefault(text, f"{host} ({key})")) != f"{host} ({key})":
                yield f"{host}: {key} is {text}, which is the address of {owner}"
    networks = [(side, address.network) for side, (_, address) in sides.items()]
    for i, (side, network) in enumerate(networks):
        for other_side, other_network in networks[:i]:
            if network.version == other_network.version and network.overlaps(other_network):
                yield f"the networks {other_side} ({other_network}) and {side} ({network}) overlap"
    for host, of in testbed.items():
        for side, network in networks:
            if _is_in(str(of.get("ansible_host", "")), network):
                yield (
                    f"{host}: its management address {of['ansible_host']} is in the network {side} "
                    f"({network}) of the experiment"
                )


def _is_in(text: str, network: Any) -> bool:
    address = _address(text)
    return address is not None and address in network


def _pairs(groups: Groups, testbed: Mapping[str, Variables]) -> Iterator[str]:
    """Hosts of one index must reach each other, both ways, with packets that routers can receive."""
    pairs = list(zip(groups.get("senders", []), groups.get("receivers", []), strict=False))
    mtus = {host: _mtu(of) or MOST_MTU_BYTES for host, of in testbed.items()}  # what is wrong is said already
    on_both_sides = [pair for pair in pairs if testbed.keys() >= set(pair)]
    if problem := narrow_router(on_both_sides, testbed.keys() & set(groups.get("routers", [])), mtus):
        yield f"nic_mtu: {problem}"
    for pair in pairs:
        for host, peer in (pair, pair[::-1]):
            if host in testbed and peer in testbed and not _reaches(testbed[host], testbed[peer]):
                yield f"{host}: has neither a network nor one of experiment_routes in common with {peer}"


def _reaches(of: Variables, peer: Variables) -> bool:
    own = [
        address.network
        for each in of.get("experiment_interfaces", {}).values()
        if (address := _interface(each))
    ]
    try:
        reached = own + [ip_network(route["to"]) for route in of.get("experiment_routes") or []]
    except (KeyError, ValueError):
        return True  # said already
    theirs = [
        address for each in peer.get("experiment_interfaces", {}).values() if (address := _interface(each))
    ]
    return not own or not theirs or any(address.ip in network for address in theirs for network in reached)


def _store(store: Variables) -> Iterator[str]:
    if store.get("influxdb_url", "") is None:
        return
    url = urlsplit(str(store.get("influxdb_url")))
    if url.scheme not in ("http", "https") or not url.hostname:
        found = store.get("influxdb_url")
        yield f"influxdb_url is {found!r}; it says where samples are kept, as http://192.0.2.3:8086"
    if not store.get("influxdb_database"):
        yield "influxdb_database is not named: the database or bucket of the samples"


def _archive(groups: Groups, testbed: Mapping[str, Variables], store: Variables) -> Iterator[str]:
    """Where samples are written: the archive's own InfluxDB, or the site's; and the accounts of both ends."""
    archives = [name for name in groups.get("archives", []) if name in testbed]
    if store.get("influxdb_url", "") is None:
        return
    installs = archives and store.get("influxdb_install", True)
    if installs:
        named = urlsplit(str(store.get("influxdb_url"))).hostname or ""
        address = str(testbed[archives[0]].get("ansible_host", ""))
        if _address(named) and _address(address) and _address(named) != _address(address):
            yield (
                f"influxdb_url names {named}, but InfluxDB is installed on {archives[0]}, whose ansible_host "
                f"is {address}; for an InfluxDB of the site's own set influxdb_install to false"
            )
    secrets = "make it in Ansible Vault as inventory/example/group_vars/all/main.yml says"
    if not store.keys() & {"influxdb_admin_password", *(() if installs else ("influxdb_admin_token",))}:
        yield f"influxdb_admin_password is missing, with which the controller reads samples: {secrets}"
    accepted = {"influxdb_writer_password", *(() if installs else ("influxdb_writer_token",))}
    lacking = [name for name, of in testbed.items() if not of.keys() & accepted]
    if lacking:
        yield (
            f"influxdb_writer_password is missing, with which {', '.join(lacking)} write samples: {secrets}"
        )


def _address(text: str) -> Any:
    """An IP address; None for a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None
