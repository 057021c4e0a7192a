"""Judge a point: complete its run directory, and end the run if it cannot go on."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution import steps
from dumbbell.execution.action import StepAction


class ActionModule(StepAction):
    """Arguments: ``planned``, and those of :func:`dumbbell.execution.steps.judge`.

    Fails if the run cannot go on.
    """

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "path", "required": True},
        "influxdb": {"type": "dict"},
        "judged": {"type": "bool", "required": True},
    }

    def step(self, **args: Any) -> dict[str, Any]:
        """Judge the fetched results."""
        answer = steps.judge(self.on, **args)
        end = answer.pop("end")
        return answer | {"failed": True, "msg": end} if end else answer
