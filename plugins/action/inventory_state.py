"""Apply the inventory's state to a host."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.asked import asked_in
from dumbbell.execution.host_state import ProvisioningAction
from dumbbell.execution.steps import PROGRAMS


class ActionModule(ProvisioningAction):
    """Argument: ``path`` (whether routers emulate the inventory's path). Fails if the host cannot have it."""

    spec: ClassVar[dict[str, Any]] = {"path": {"type": "bool", "default": True}}

    def act(self, path: bool) -> dict[str, Any]:
        """Apply the state and read it back; in check mode report the changes."""
        if self._task.check_mode and (lacking := self._lacking()):
            self._display.display(f"{self.host}: its state can be compared once it has {lacking}")
            return {"changed": True}
        without = {} if path else {"path_forward": None, "path_reverse": None}
        result = self.apply(asked=[asked_in(None, self.host, self.variables() | without)])
        return {key: result[key] for key in ("changed", "commands", "diff", "state")}

    def _lacking(self) -> str:
        """Programs that read the state, which a bare host lacks until its roles have run."""
        tried = (f"command -v {name} >/dev/null || echo {name}" for name in PROGRAMS)
        return ", ".join(self.shell("; ".join(tried)).split())
