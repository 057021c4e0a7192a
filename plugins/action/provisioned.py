"""Tell whether a host is as its last provisioning left it, made from what this one is made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load
from ansible.plugins.action import ActionBase
from ansible.vars.manager import VariableManager

from dumbbell import REPOSITORY

# What roles copy to hosts, and what says how. A file whose time has changed counts as another one.
MADE_FROM = (
    *("playbooks/provision.yml", "plugins", "modules", ".build/bin"),
    *(f"roles/{role}" for role in ("packages", "clock", "influxdb", "modules", "agent", "telegraf")),
)

PACKAGES = REPOSITORY / "roles/packages/defaults/main.yml"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Argument: ``record``, as the module of this name has it."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Compare, or record."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        assert task_vars is not None
        packages = task_vars.get("packages_present") or yaml_load(PACKAGES.read_bytes())["packages_present"]
        arguments = self._task.args | {
            "inputs": self._inputs(task_vars),
            "packages": self._templar.template(packages),
        }
        found: dict[str, Any] = self._execute_module(module_args=arguments, task_vars=task_vars)
        return result | found

    def _inputs(self, task_vars: dict[str, Any]) -> str:
        """SHA-256 over all that decides what a provisioning of this host leaves."""
        # A new manager knows what inventory and command line say, and nothing that tasks have registered.
        inventory = self._task.get_variable_manager()._inventory
        manager = VariableManager(loader=self._loader, inventory=inventory)
        own, *others = (
            _said(manager.get_vars(host=host, include_hostvars=False))
            for host in [
                inventory.get_host(task_vars["inventory_hostname"]),
                *sorted(inventory.get_hosts("testbed", ignore_limits=True), key=str),
            ]
        )
        named = self._templated(own)
        files = [Path(value) for value in named.values() if _is_file(value)]
        digest = hashlib.sha256(json.dumps([named, others], default=str, sort_keys=True).encode())
        for line in _stamps([*files, *(REPOSITORY / name for name in MADE_FROM)]):
            digest.update(line.encode())
        return digest.hexdigest()

    def _templated(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Values as roles see them: a template may read a secret from a file."""
        found = {}
        for name, value in variables.items():
            try:
                found[name] = self._templar.template(value)
            except Exception:  # of a variable that nothing here needs
                found[name] = str(value)
        return found


def _said(variables: dict[str, Any]) -> dict[str, Any]:
    """Without what Ansible says of itself and of how it was called."""
    return {
        name: value
        for name, value in variables.items()
        if name in ("ansible_host", "ansible_user") or (not name.startswith("ansible_") and name != "omit")
    }


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/") and "\n" not in value and Path(value).is_file()


def _stamps(places: list[Path]) -> Iterator[str]:
    """Name, size and time of each file."""
    for place in places:
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file() and "__pycache__" not in file.parts:
                stat = file.stat()
                yield f"{file} {stat.st_size} {stat.st_mtime_ns}\n"
