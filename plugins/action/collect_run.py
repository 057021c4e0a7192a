"""Complete a point's run directory: tables, manifest and verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.execution.judge import judge


class ActionModule(ActionBase):
    """Arguments: ``run_dir``, ``influxdb``, ``reasons`` (errors of the run).

    Returns the result of :func:`dumbbell.execution.judge.judge`.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Collect and judge."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "run_dir": {"type": "path", "required": True},
                "influxdb": {"type": "dict"},
                "reasons": {"type": "list", "elements": "str", "default": []},
            }
        )
        found = judge(Path(args["run_dir"]), args["influxdb"], args["reasons"], judged=True)
        return result | {"changed": True} | found
