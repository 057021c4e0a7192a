"""Arm the agent of a point's first phase, unless an earlier step had an error."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution import steps
from dumbbell.execution.action import StepAction


class ActionModule(StepAction):
    """Arguments: ``planned``, and those of :func:`dumbbell.execution.steps.arm`."""

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "path", "required": True},
        "timeout_s": {"type": "int", "required": True},
        "every": {"type": "int", "required": True},
    }

    def step(self, **args: Any) -> dict[str, Any]:
        """Decide whether to calibrate, and arm."""
        return steps.arm(self.on, **args)
