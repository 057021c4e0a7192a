"""Apply the inventory's state to a host."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.asked import asked_in
from dumbbell.execution.host_state import ProvisioningAction


class ActionModule(ProvisioningAction):
    """Argument: ``path`` (whether routers emulate the inventory's path). Fails if the host cannot have it."""

    spec: ClassVar[dict[str, Any]] = {"path": {"type": "bool", "default": True}}

    def act(self, path: bool) -> dict[str, Any]:
        """Apply the state and read it back; in check mode report the changes."""
        without = {} if path else {"path_forward": None, "path_reverse": None}
        result = self.apply(asked=[asked_in(None, self.host, self.variables() | without)])
        return {key: result[key] for key in ("changed", "commands", "diff", "state")}
