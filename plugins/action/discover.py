"""Read the NICs of a host, or propose an inventory from those of all hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from dumbbell.execution.action import Trouble
from dumbbell.execution.host_state import ProvisioningAction
from dumbbell.inventory.discovered import proposed


class ActionModule(ProvisioningAction):
    """Arguments: ``read``, what hosts registered by the first task; ``directory`` of the inventory.

    On a host it returns ``facts``. With ``read`` it returns ``groups`` of ``dumbbell.inventory.discovered``,
    and fails if the directory has an inventory.
    """

    spec: ClassVar[dict[str, Any]] = {"read": {"type": "str", "default": ""}, "directory": {"type": "path"}}

    def act(self, read: str, directory: str | None) -> dict[str, Any]:
        """Read, or propose."""
        if not read:
            return {"facts": self.module("preflight", discover=True)["facts"]}
        hosts = Path(str(directory), "hosts.yml")
        if hosts.exists():
            raise Trouble(f"{hosts} is there already: name another directory by -e inventory=inventory/NAME")
        names = [host for host in self.task_vars["groups"]["all"] if host != "localhost"]
        answers = {host: self.task_vars["hostvars"][host].get(read, {}) for host in names}
        found = {host: answer["facts"] for host, answer in answers.items() if "facts" in answer}
        if not found:
            raise Trouble("no host was read: name hosts by -i ADDRESS,ADDRESS, with a comma at the end")
        return {"groups": proposed(found)}
