"""Find the points of a run that have no result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.run.directory import RunDir


class ActionModule(ActionBase):
    """Arguments: ``run_dir``, ``lost`` (ids of executions whose agents did not go on).

    Returns RunDir.facts of the run and of each point without a result. A point that was begun and
    did not reach its measurement, or whose agents are lost, gets another attempt; the earlier one is
    kept beside it.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Make directories for further attempts."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "run_dir": {"type": "path", "required": True},
                "lost": {"type": "list", "elements": "str", "required": True},
            }
        )
        run = RunDir.open(Path(args["run_dir"]))
        left = [execution for execution in run.executions if not execution.finished]
        executions = [
            execution.again()
            if execution.begun and (not execution.measuring or execution.id in args["lost"])
            else execution
            for execution in left
        ]
        return result | {"changed": executions != left} | run.facts(executions)
