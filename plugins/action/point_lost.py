"""Stop the agents of a measurement that did not go on on every host."""

from __future__ import annotations

from typing import Any

from dumbbell.execution.action import StepAction


class ActionModule(StepAction):
    """Argument: ``planned``. Sets the fact ``run_lost``: ids of all points that must start again."""

    def step(self) -> dict[str, Any]:
        """Decide in the same way on every host. A silent host may have gone on, and is awaited later."""
        answers = self.on.said("run_asked")
        if all(answer.get("goes_on", True) for answer in answers.values()):
            return {}
        for phase in self.on.point.phases(self.host):
            self.on.stop(phase)
        lost = [*self.task_vars.get("run_lost", []), self.on.point.run_id]
        return {"changed": True, "ansible_facts": {"run_lost": lost}}
