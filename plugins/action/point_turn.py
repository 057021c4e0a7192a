"""Await the end of the calibration on a host, and arm the measurement."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution import steps
from dumbbell.execution.action import StepAction


class ActionModule(StepAction):
    """Arguments: ``planned``, and those of :func:`dumbbell.execution.steps.turn`."""

    spec: ClassVar[dict[str, Any]] = {
        "end_timeout_s": {"type": "int", "required": True},
        "arm_timeout_s": {"type": "int", "required": True},
    }

    def step(self, **args: Any) -> dict[str, Any]:
        """Await the calibration's end, then arm."""
        return steps.turn(self.on, **args)
