"""Complete the plan of a router's agent with the commands that change the path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.rundir import plan_path_changes


class ActionModule(ActionBase):
    """Arguments: ``run_dir``, ``host``, and ``changes`` and ``restore`` as the role path gives them."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write them into the host's part of the plan, which is then sent to its agent."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "run_dir": {"type": "path", "required": True},
                "host": {"type": "str", "required": True},
                "changes": {"type": "dict", "required": True},
                "restore": {"type": "list", "elements": "list", "required": True},
            }
        )
        changed = plan_path_changes(
            Path(args["run_dir"]),
            args["host"],
            args["changes"],
            args["restore"],
            check=self._task.check_mode,
        )
        return result | {"changed": changed}
