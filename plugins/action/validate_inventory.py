"""Check the inventory of the testbed without contacting a host."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.inventory.check import known_variables, problems
from dumbbell.places import COLLECTION


class ActionModule(ActionBase):
    """Fails with every problem, one a line."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check the templated variables of every host of the group testbed."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.validate_argument_spec({})
        groups = {name: list(members) for name, members in task_vars["groups"].items()}
        roles = known_variables(COLLECTION / "roles")
        hosts = {name: _variables(task_vars["hostvars"][name]) for name in groups.get("testbed", [])}
        store = {
            name: self._templar.template(task_vars[name]) if name in _STORE else None
            for name in task_vars
            if name.startswith("influxdb_")
        }
        found = problems(groups, hosts, store, roles)
        if found:
            return result | {"failed": True, "msg": "\n".join(["the inventory is no testbed:", *found])}
        return result | {"changed": False}


# Secrets are not read: a Vault may be locked, and a generated password would be created by the first read.
_READ = {
    "management_interface",
    "experiment_interfaces",
    "experiment_routes",
    "ansible_host",
    "nic_mtu",
    "nic_offloads",
    "nic_qdisc",
    "sysctl_settings",
}
_STORE = {"influxdb_url", "influxdb_database", "influxdb_install"}  # of all hosts


def _variables(of: Any) -> dict[str, Any]:
    """Every variable of a host by its name; None for those that are not read."""
    return {name: of[name] if name in _READ else None for name in of}
