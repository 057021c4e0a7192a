"""Bring a host to the state of the inventory, whatever a run has left."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.host_state import ProvisioningAction


class ActionModule(ProvisioningAction):
    """Argument: ``path`` (whether a router emulates the inventory's). Fails where the host cannot have it."""

    spec: ClassVar[dict[str, Any]] = {"path": {"type": "bool", "default": True}}

    def act(self, path: bool) -> dict[str, Any]:
        """Apply it and read it back; in check mode say what would be done."""
        without = {} if path else {"path_forward": None, "path_reverse": None}
        result = self.module(asked=[self.asked(self.variables() | without)])
        return {key: result[key] for key in ("changed", "commands", "diff", "state")}
