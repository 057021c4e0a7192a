"""Bring a host to the state of the inventory, whatever a run has left."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.host_state import StateAction


class ActionModule(StateAction):
    """Argument: ``path`` (whether a router emulates the inventory's). Fails where the host cannot have it."""

    spec: ClassVar[dict[str, Any]] = {"path": {"type": "bool", "default": True}}

    def act(self, path: bool) -> dict[str, Any]:
        """Apply it, read it back, and wait for the clock; in check mode say what would be done."""
        without = {} if path else {"path_forward": None, "path_reverse": None}
        variables = self.variables()
        result = self.module(asked=[self.asked(variables | without)], clock=self.clock(variables))
        return {key: result[key] for key in ("changed", "commands", "diff", "state")}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """A provisioning ends where a host cannot be what the inventory says."""
        result = super().run(tmp, task_vars)
        return result | {"failed": bool(result["trouble"]), "msg": result["trouble"]}
