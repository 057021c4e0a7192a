"""Send t0 of a phase to a host."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution import steps
from dumbbell.execution.action import StepAction


class ActionModule(StepAction):
    """Arguments: ``planned``, and those of :func:`dumbbell.execution.steps.start`."""

    spec: ClassVar[dict[str, Any]] = {
        "phase": {"type": "str", "required": True, "choices": ["calibration", "measurement"]},
        "armed_by": {"type": "list", "elements": "str", "required": True},
        "margin_s": {"type": "float", "required": True},
    }

    def step(self, **args: Any) -> dict[str, Any]:
        """Send t0 if every agent is armed."""
        return steps.start(self.on, **args)
