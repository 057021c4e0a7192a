"""Apply a point's complete state to a host."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution import steps
from dumbbell.execution.action import StepAction
from dumbbell.execution.host_state import StateAction


class ActionModule(StateAction, StepAction):
    """Arguments: ``planned`` (a point), and those of :func:`dumbbell.execution.steps.state`."""

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "path", "required": True},
        "hold_s": {"type": "int", "required": True},
        "trim_us": {"type": "int"},
        "pack": {"type": "list", "elements": "str", "default": []},
    }

    def step(self, **args: Any) -> dict[str, Any]:
        """Apply the state, and write the state that was read back."""
        return steps.state(self.on, self.variables, **args)
