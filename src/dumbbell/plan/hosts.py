"""The state of every host: the scenario's settings merged over the inventory's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dumbbell import units
from dumbbell.inventory import Inventory
from dumbbell.plan.document import Flow, Host, State
from dumbbell.plan.places import Places, Refuse
from dumbbell.plan.ports import EPHEMERAL, parse_range
from dumbbell.scenario import KeyPath, Scenario
from dumbbell.scenario.hosts import GAPS_NEED, READ_GAPS, READ_TXQUEUELEN, SUPER_PACKETS, TIMESTAMPS
from dumbbell.words import listed


class Hosts:
    """Resolves the states of hosts. ``varies`` has the values in the file, which show what varies."""

    def __init__(
        self,
        scenario: Scenario,
        inventory: Inventory,
        places: Places,
        refuse: Refuse,
        *,
        varies: Any,
        timestamps: bool,
    ) -> None:
        self.scenario = scenario
        self.inventory = inventory
        self.places = places
        self._refuse = refuse
        self.varies = varies
        self.timestamps = timestamps  # whether the scenario needs TCP's timestamps

    def ephemeral(self) -> dict[str, tuple[int, int]]:
        """The first and last port that the kernel of a host chooses from, if the scenario sets them."""
        ranges = {}
        for name, state in self.scenario.hosts.items():
            if (ports := state.sysctls.get("net.ipv4.ip_local_port_range")) is not None:
                if (parsed := parse_range(str(ports))) is None:
                    key: KeyPath = ("hosts", name, "sysctls", "net.ipv4.ip_local_port_range")
                    self._refuse(key, f"{ports!r} is not two ports")
                for host in self.places.members(name):
                    ranges[host] = parsed or EPHEMERAL
        return ranges

    def resolve(self, flows: Sequence[Flow]) -> dict[str, Host]:
        """Every host of the testbed with an interface for experiments, and its state."""
        testbed = self.inventory.groups.get("testbed", [])
        for name in self.scenario.hosts:
            if not self.places.members(name):
                self._refuse(
                    ("hosts", name), "is neither a group of the inventory nor a host of the group testbed"
                )
        hosts = {
            host: Host(groups=self.inventory.groups_of(host), state=self._state(host, flows))
            for host in sorted(testbed)
            if self.inventory.hosts[host].experiment_interfaces
        }
        self._check_qdisc(hosts)
        self._check_txqueuelen(hosts)
        self._check_pacing(hosts, flows)
        self._check_timestamps(hosts)
        return hosts

    def _state(self, host: str, flows: Sequence[Flow]) -> State:
        """The merged state: large groups first and the host last, so that the more specific value counts."""
        about = {name: self.places.members(name) for name in self.scenario.hosts}
        names = sorted((n for n in about if host in about[n]), key=lambda n: (n == host, -len(about[n]), n))
        own = self.inventory.hosts[host]
        state = State(
            kernel=None,
            modules={},
            # An emulated path would treat merged packets as one.
            offloads={name: own.nic_offloads.get(name, False) for name in SUPER_PACKETS}
            if self.scenario.path
            else {},
            txqueuelen=None,
            mtu=own.nic_mtu if own.nic_mtu != units.MTU_BYTES else None,
            qdisc=None,
            sysctls={TIMESTAMPS: "1"} if self.timestamps else {},
            congestion_controls=sorted(
                {
                    f.congestion_control
                    for f in flows
                    if host in (f.src_host, f.dst_host) and f.congestion_control
                }
            ),
        )
        if set(READ_GAPS) & set(state.congestion_controls):
            state.routes = dict(GAPS_NEED)
        for name in names:
            asked = self.scenario.hosts[name]
            for key in ("kernel", "txqueuelen", "mtu", "qdisc"):
                if (value := getattr(asked, key)) is not None:
                    setattr(state, key, value)
            state.offloads |= {str(feature): on for feature, on in asked.offloads.items()}
            state.sysctls |= {key: str(value) for key, value in asked.sysctls.items()}
            if asked.routes:
                state.routes = (state.routes or {}) | {str(option): on for option, on in asked.routes.items()}
            for module, parameters in asked.modules.items():
                state.modules.setdefault(module, {}).update({k: _parameter(v) for k, v in parameters.items()})
        for key in ("modules", "offloads", "sysctls"):
            setattr(state, key, dict(sorted(getattr(state, key).items())))
        return state

    def _check_qdisc(self, hosts: Mapping[str, Host]) -> None:
        """Refuse a qdisc on a router's interfaces, which have the emulated path."""
        for name, asked in self.scenario.hosts.items():
            routers = [h for h in self.places.members(name) if h in hosts and "routers" in hosts[h].groups]
            if asked.qdisc and routers:
                reason = f"{routers[0]} is a router, which has the path there: ask groups without routers"
                self._refuse(("hosts", name, "qdisc"), reason)

    def _check_pacing(self, hosts: Mapping[str, Host], flows: Sequence[Flow]) -> None:
        """Refuse the qdisc fq where it would pace packets in place of their congestion control."""
        for name, asked in self.scenario.hosts.items():
            for host in self.places.members(name) if asked.qdisc == "fq" else []:
                for flow in flows:
                    if flow.src_host == host and flow.congestion_control in READ_GAPS:
                        reason = f"{flow.congestion_control} ({flow.name}, on {host}) sets each gap itself"
                        self._refuse(
                            ("hosts", name, "qdisc"), f"{reason}, which fq overrules: ask pfifo_fast"
                        )
                        return

    def _check_timestamps(self, hosts: Mapping[str, Host]) -> None:
        """Refuse hosts without timestamps where they are needed to know when a packet arrived."""
        for name, asked in self.scenario.hosts.items():
            for host in self.places.members(name) if str(asked.sysctls.get(TIMESTAMPS)) == "0" else []:
                state = hosts[host].state if host in hosts else None
                if state and state.sysctls[TIMESTAMPS] == "0":
                    for control in sorted(set(READ_GAPS) & set(state.congestion_controls)):
                        reason = f"{control} (on {host}) reads gaps from TCP's timestamps: ask 1, or nothing"
                        self._refuse(("hosts", name, "sysctls", TIMESTAMPS), reason)
                        return

    def _check_txqueuelen(self, hosts: Mapping[str, Host]) -> None:
        """Refuse a sweep of txqueuelen over a qdisc that does not read it: all points would be equal."""
        for name in self.scenario.hosts:
            asked = self.varies
            for key in ("hosts", name, "txqueuelen"):
                asked = asked.get(key) if isinstance(asked, dict) else None
            if not isinstance(asked, list | str):
                continue
            for host in self.places.members(name):
                qdisc = hosts[host].state.qdisc if host in hosts else None
                if host in hosts and "routers" not in hosts[host].groups and qdisc not in READ_TXQUEUELEN:
                    found = f"the qdisc of {host} is {qdisc}" if qdisc else f"no qdisc is asked for on {host}"
                    self._refuse(
                        ("hosts", name, "txqueuelen"),
                        f"it varies, but {found}; only {listed(READ_TXQUEUELEN)} read it",
                    )
                    break


def _parameter(value: int | str | bool) -> str:
    """The value of a module's parameter as sysfs shows it."""
    return {True: "Y", False: "N"}[value] if isinstance(value, bool) else str(value)
