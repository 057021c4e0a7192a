"""Names of hosts in a scenario: groups and hosts of the inventory, and the scenario's roles."""

from __future__ import annotations

import re
from collections.abc import Callable

from dumbbell.inventory import Inventory
from dumbbell.plan.path import Way
from dumbbell.scenario import KeyPath, Scenario
from dumbbell.words import listed

Refuse = Callable[[KeyPath, str], None]  # called with a key of the scenario, and why it cannot be met


class Places:
    """Resolves names of hosts. ``refuse`` gets each name that is unknown."""

    def __init__(self, scenario: Scenario, inventory: Inventory, refuse: Refuse) -> None:
        self.scenario = scenario
        self.inventory = inventory
        self._refuse = refuse

    def check_roles(self) -> None:
        """Refuse roles that name nothing in the inventory."""
        groups, testbed = self.inventory.groups, self.inventory.groups.get("testbed", [])
        for role, bound in self.scenario.roles.items():
            key: KeyPath = ("roles", role)
            if role in groups or role in testbed:
                self._refuse(key, "the inventory has a group or host of this name")
            elif bound not in groups:
                self.endpoint(key, bound)

    def _bound(self, asked: str) -> str:
        """The host or group that a role stands for; other names as they are."""
        name, bracket, index = asked.partition("[")
        return self.scenario.roles.get(name, name) + bracket + index

    def members(self, name: str) -> list[str]:
        """The hosts that a group, role or host stands for; none if it is unknown."""
        bound = self._bound(name)
        if bound in self.inventory.groups:
            return self.inventory.groups[bound]
        if match := re.fullmatch(r"(.+)\[(\d+)\]", bound):
            return self.inventory.groups.get(match[1], [])[int(match[2]) :][:1]
        return [bound] if bound in self.inventory.groups.get("testbed", []) else []

    def endpoint(self, key: KeyPath, asked: str, shift: int = 0) -> str | None:
        """Host that ``senders[0]``, a role or ``sender1`` stands for, if it can carry a flow."""
        groups, hosts = self.inventory.groups, self.inventory.hosts
        bound = self._bound(asked)
        host, reason = bound, ""
        if match := re.fullmatch(r"(.+)\[(\d+)\]", bound):
            members, index = groups.get(match[1], []), int(match[2]) + shift
            if index < len(members):
                host = members[index]
            elif match[1] in groups:
                again = f", and {asked} with the repetitions needs {index + 1}" if shift else ""
                reason = f"the group {match[1]} has {len(members)} hosts: {listed(members)}{again}"
            else:
                reason = f"the inventory has no group {match[1]}; it has {listed(groups)}"
        elif shift:
            reason = f"different pairs need GROUP[INDEX] to count from, not {asked}"
        if not reason and host not in hosts:
            also = f"; roles are {listed(self.scenario.roles)}" if self.scenario.roles else ""
            reason = f"the inventory has no host {host}; it has {listed(hosts)}{also}"
        elif not reason and host not in groups.get("testbed", []):
            reason = f"{host} is not in the group testbed"
        elif not reason and (count := len(hosts[host].experiment_interfaces)) != 1:
            reason = f"{host} has {count} experiment interfaces; the end of a flow has exactly one"
        if reason:
            self._refuse(key, reason)
            return None
        return host

    def address(self, host: str) -> str:
        """The address of the host's interface for experiments."""
        (interface,) = self.inventory.hosts[host].experiment_interfaces.values()
        return str(interface.address.ip)

    def side(self, host: str) -> str:
        """The side of the path that the host's interface is on."""
        (side,) = self.inventory.hosts[host].experiment_interfaces
        return side

    def direction(self, src_host: str) -> Way:
        """The direction of the path that data from this host takes."""
        return "reverse" if self.side(src_host) == "right" else "forward"
