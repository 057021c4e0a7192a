"""What the planner needs to know of the testbed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Interface(BaseModel):
    """An interface that carries experiment traffic; ``address`` in CIDR notation."""

    model_config = ConfigDict(extra="forbid")
    device: str
    address: str


class InventoryHost(BaseModel):
    """What the planner needs to know of a host."""

    model_config = ConfigDict(extra="forbid")
    management_interface: str | None = None
    experiment_interfaces: dict[str, Interface] = {}


class Inventory(BaseModel):
    """Groups and hosts, as Ansible knows them. Not strict: Ansible's strings are subclasses of str."""

    model_config = ConfigDict(extra="forbid")
    groups: dict[str, list[str]]
    hosts: dict[str, InventoryHost]

    def groups_of(self, host: str) -> list[str]:
        """Names of the groups that contain this host, sorted."""
        return sorted(group for group, members in self.groups.items() if host in members)
