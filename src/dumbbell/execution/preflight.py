"""Whether a host is fit for experiments: decisions from what its preflight read and tried."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, NamedTuple

from dumbbell.plan.document import Flow

Facts = Mapping[str, Any]

LEAST_FREE_BYTES = 200_000_000
ENOUGH_FREE_BYTES = 2_000_000_000
PORTS = 64  # of a host that are tried
# Where GRUB cannot write its environment, a choice for the next boot stays: grub-core/commands/loadenv.c.
UNWRITABLE = {"lvm": "LVM", "diskfilter": "RAID or LVM", "mdraid": "RAID", "btrfs": "btrfs", "zfs": "ZFS"}
TIME_DAEMONS = {"systemd-timesyncd", "ntp", "ntpd", "ntpsec", "openntpd"}
POWER_DAEMONS = {"tuned", "power-profiles-daemon"}


class Finding(NamedTuple):
    """Something that a person should know of a host, with what to do."""

    text: str
    refuses: bool  # whether runs fail or are invalid by it


class End(NamedTuple):
    """An end that a host tries to reach for another one's sake."""

    client: str
    server: str
    protocol: str
    source: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.protocol.upper()} {self.address}:{self.port} of {self.server}"


def findings(facts: Facts, forwarding: Collection[str] = ()) -> Iterator[Finding]:
    """What a host's facts say, the experiment interfaces first.

    A router has ``forwarding``, the sysctls by which it must forward.
    """
    for name, nic in facts["nics"].items():
        for text, refuses in _nic(name, nic, facts["configured_by"].get(name, [])):
            yield Finding(text, refuses)
    yield from _firewall(facts["firewall"], facts["active"], router=bool(forwarding))
    for sysctl in forwarding:
        if not facts["forwards"][sysctl]:
            yield Finding(f"forwards no packets ({sysctl} is 0): provision it", True)
    yield from _services(facts)
    yield from _resources(facts)
    if facts["grub"] and (reason := not_one_shot(facts["grub"])):
        yield Finding(f"keeps its kernel: {reason}", False)
    if facts["secure_boot"]:
        yield Finding("secure boot is on: it boots signed kernels and loads signed modules only", False)


def _nic(name: str, nic: Facts | None, configured_by: Sequence[str]) -> Iterator[tuple[str, bool]]:
    if nic is None:
        yield f"{name}: this host has no such interface; `ip -br link` lists them", True
        return
    for by in configured_by:
        yield f"{name}: {by} configures it too: remove it there, because Dumbbell sets it at runtime", True
    if nic["master"] or nic["kind"] in ("vlan", "bond", "team", "bridge"):
        what = f"part of {nic['master']}" if nic["master"] else f"a {nic['kind']}"
        yield f"{name}: is {what}, which is not supported: name a NIC of its own", True
    if not nic["up"]:
        yield f"{name}: is down: provision it to try carrier and speed", False
        return
    if nic["carrier"] is False:
        yield f"{name}: no carrier: check cable, transceiver and the other end", True
    if nic["duplex"] == "half":
        yield f"{name}: half duplex: let both ends negotiate, or replace the cable", True
    if nic["carrier"] and nic["driver"] and nic["speed_mbps"] is None:
        yield f"{name}: its driver {nic['driver']} tells no speed", False


def _firewall(chains: Iterable[Facts], active: Sequence[str], *, router: bool) -> Iterator[Finding]:
    hooks = ("input", "output", "forward") if router else ("input", "output")
    dropping = [chain for chain in chains if chain["hook"] in hooks and chain["policy"] != "accept"]
    if dropping or (dropping := [c for c in chains if c["hook"] in hooks and "firewalld" in active]):
        text = f"{_tool(dropping, active)} drops what it does not allow: allow the ports of flows"
        yield Finding(text + (" and forwarding" if router else ""), False)


def firewall_of(facts: Facts, *, forwards: bool) -> str:
    """The firewall that may drop packets to a host, or through it; '' if it has none with rules."""
    hook = "forward" if forwards else "input"
    chains = [
        chain
        for chain in facts["firewall"]
        if chain["hook"] == hook and (chain["policy"] != "accept" or chain["rules"])
    ]
    return _tool(chains, facts["active"]) if chains else ""


def _tool(chains: Sequence[Facts], active: Sequence[str]) -> str:
    """What a person configures: ufw or firewalld, if one made the chains; else the chains themselves."""
    front = [name for name in ("ufw", "firewalld") if name in active]
    of = ", ".join(f"{chain['chain']}: policy {chain['policy']}, {chain['rules']} rules" for chain in chains)
    return f"{front[0] if front else chains[0]['tool']} ({of})"


def _services(facts: Facts) -> Iterator[Finding]:
    active = set(facts["active"])
    for name in sorted(active & TIME_DAEMONS):
        yield Finding(f"{name} sets the clock beside chrony: systemctl disable --now {name}", True)
    if "irqbalance" in active:
        yield Finding(
            "irqbalance moves interrupts between CPUs during runs: set nic_irq_cpus and quiesce_enabled",
            False,
        )
    for name in sorted(active & POWER_DAEMONS):
        yield Finding(f"{name} may change the power profile: choose one for performance, or stop it", False)
    slow = [name for name in facts["governors"] if name != "performance"]
    if slow:
        yield Finding(f"CPU governor {', '.join(slow)}: nic_cpu_governor: performance holds the clock", False)


def _resources(facts: Facts) -> Iterator[Finding]:
    for path, free in facts["free_bytes"].items():
        if free < ENOUGH_FREE_BYTES:
            text = f"{free / 1e6:.0f} MB are free for {path}, where a run keeps its samples: make room"
            yield Finding(text, free < LEAST_FREE_BYTES)
    for each in facts["busy"]:
        text = f"{each['name']} of {each['user']} uses {each['cpus']:g} CPUs: wait until it ends"
        yield Finding(text, False)


def not_one_shot(grub: Facts) -> str:
    """Why GRUB cannot choose a kernel for one boot only on this host; '' if it can."""
    for word, name in UNWRITABLE.items():
        if word in grub["abstraction"] or word == grub["fs"]:
            return (
                f"/boot/grub is on {name}, where GRUB cannot write its environment, so that a kernel that "
                "panics would be booted again and again; a /boot on a plain ext4 or xfs partition can be used"
            )
    return ""


def kernel_refusal(facts: Facts, release: str, *, file: bool) -> str:
    """Why the kernel of a host is not changed; '' if it can be.

    ``release`` is that of an installed kernel, or ''; ``file`` whether it comes in a file or from a recipe.
    """
    if facts["grub"] is None:
        return "it has no /boot/grub, as Debian and Ubuntu have it; on other hosts kernels are not changed"
    if reason := not_one_shot(facts["grub"]):
        return reason
    if facts["secure_boot"] and (file or facts["kernels"].get(release) is False):
        return (
            f"secure boot is on and {release or 'a kernel from a file or recipe'} is not signed, so that the "
            "firmware would not start it: sign it, or switch secure boot off in the firmware"
        )
    return ""


# Reaching others


class Ping(NamedTuple):
    """A packet that a host sends, whole, to another one; a neighbour is on a network of its own."""

    device: str
    host: str
    peer: str
    mtu: int
    neighbour: bool


def pings_of(host: str, others: Sequence[str], hosts: Mapping[str, Facts]) -> list[Ping]:
    """The pings of a host to those others that its interfaces or its routes lead to.

    ``hosts`` has of each its ``interfaces`` (side to device, address and mtu) and ``routes`` (to, via).
    """
    own = hosts[host]
    found = []
    for other in others:
        for theirs in hosts[other]["interfaces"].values():
            peer = ip_interface(theirs["address"]).ip
            if way := _way(own, peer):
                nic, near = way
                mtu = min(nic["mtu"], theirs["mtu"])
                found.append(Ping(nic["device"], other, str(peer), mtu, near))
    return found


def _way(own: Facts, peer: Any) -> tuple[Facts, bool] | None:
    """The interface that leads to an address, and whether directly."""
    nics = [(nic, ip_interface(nic["address"]).network) for nic in own["interfaces"].values()]
    if near := next((nic for nic, network in nics if peer in network), None):
        return near, True
    for route in own["routes"]:
        if peer in ip_network(route["to"]):
            via = ip_address(route["via"])
            return next(((nic, False) for nic, network in nics if via in network), None)
    return None


def unanswered(pings: Sequence[Ping], answers: Sequence[Facts]) -> Iterator[Finding]:
    """What follows from a host's pings; an answer has ``error`` and ``lladdr``."""
    for ping, answer in zip(pings, answers, strict=True):
        where, said = f"{ping.host} ({ping.peer})", answer["error"]
        if said and ping.neighbour and answer["lladdr"] is None:
            yield Finding(
                f"{ping.device}: {where} does not answer there: check cabling, switch, and the devices and "
                f"addresses of both in the inventory ({said})",
                True,
            )
        elif said:
            yield Finding(
                f"{ping.device}: packets of {ping.mtu} bytes that may not be fragmented do not return from "
                f"{where}: check the MTU of switches, routes and firewalls on the way ({said})",
                True,
            )


def ends_of(flows: Iterable[Flow]) -> list[End]:
    """The ends that flows need, each once."""
    found: dict[End, None] = {}
    for flow in flows:
        for protocol in flow.protocols if flow.server_port else ():
            hosts = (flow.client_host, flow.server_host)
            found[End(*hosts, protocol, flow.client, flow.server, flow.server_port)] = None
    return list(found)


def unreached(
    tried: Iterable[tuple[End, str]],
    facts: Mapping[str, Facts],
    taken: Mapping[str, Sequence[str]],
    routers: Sequence[str],
) -> Iterator[Finding]:
    """What follows from the ends that one host has tried: which firewalls of the way may drop what."""
    for end, error in tried:
        if not error:
            continue
        own = f"{end.protocol.upper()} {end.address}:{end.port}:"
        if any(each.startswith(own) for each in taken.get(end.server, [])):
            yield Finding(f"{end} is in use by another program there: end it, or wait", True)
            continue
        between = [] if end.server not in facts else [host for host in routers if host != end.client]
        walls = [
            f"{host}: {wall}"
            for host in (end.server, *between)
            if host in facts and (wall := firewall_of(facts[host], forwards=host in routers))
        ]
        known = [host for host in (end.server, *between) if host in facts]
        if walls:
            advice = f"allow it in the firewall: {'; '.join(walls)}"
        elif known:
            advice = f"no firewall was found on {', '.join(known)}"
        else:
            advice = f"look whether {end.server} listens there (provision it), and at its firewall"
        yield Finding(f"{end} is not reached ({error}); {advice}", True)
