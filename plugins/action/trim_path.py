"""Compute how much to subtract from the emulated delay for the path's own delay."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution import steps
from dumbbell.execution.action import StepAction


class ActionModule(StepAction):
    """Arguments: ``planned``, and those of :func:`dumbbell.execution.steps.trim`."""

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "path", "required": True},
        "max_us": {"type": "int", "required": True},
        "attempts": {"type": "int", "required": True},
    }

    def step(self, **args: Any) -> dict[str, Any]:
        """Compute the correction."""
        return steps.trim(self.on, **args)
