"""Base classes of the actions that need the inventory's variables of a host's state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load
from ansible.template import trust_as_template

from dumbbell.execution.action import HostAction
from dumbbell.execution.reach import Trouble
from dumbbell.places import COLLECTION

ROLES = ("nic", "sysctl", "modules", "path", "clock", "quiesce")  # roles with variables for the inventory

Spec = dict[str, Any]


def defaults(roles: Path) -> dict[str, Any]:
    """Defaults of the variables that inventories may set; they may be templates of Ansible."""
    found: dict[str, Any] = {}
    for role in ROLES:
        found |= yaml_load((roles / role / "defaults/main.yml").read_bytes()) or {}
    return {
        name: trust_as_template(value) if isinstance(value, str) else value for name, value in found.items()
    }


def specs(roles: Path) -> dict[str, Spec]:
    """The argument specs of each role's variables, in the format of Ansible's validators."""
    files = {role: roles / role / "meta/argument_specs.yml" for role in ROLES}
    return {
        role: yaml_load(file.read_bytes())["argument_specs"]["main"]["options"]
        for role, file in files.items()
    }


class StateAction(HostAction):
    """An action that applies a state to its host, or checks whether the host can have it."""

    def variables(self) -> dict[str, Any]:
        """The inventory's variables of the host, and the defaults of the others."""
        roles = COLLECTION / "roles"
        wants = specs(roles)
        said = [name for of in wants.values() for name in of if name in self.task_vars]
        named = defaults(roles) | {name: self.task_vars[name] for name in said}
        found = {name: self._templar.template(value) for name, value in named.items()}
        for role, spec in wants.items():
            given = {name: found[name] for name in spec if found.get(name) is not None}
            checked = ArgumentSpecValidator(spec).validate(given)
            if checked.error_messages:
                raise Trouble(f"variables of role {role}: {'; '.join(checked.error_messages)}")
        return found


class ProvisioningAction(StateAction):
    """An action whose error ends the play for its host, because a host in another state must not be used."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action, and fail if it returns an error."""
        result = super().run(tmp, task_vars)
        return result | {"failed": bool(result["trouble"]), "msg": result["trouble"]}
