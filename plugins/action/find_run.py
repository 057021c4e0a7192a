"""Find the directory of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from dumbbell.run.directory import RunDir


class ActionModule(ActionBase):
    """Arguments: ``run_dir``, ``point`` (id of an execution; by default all).

    Returns RunDir.facts of the run and of these points.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the run directory."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {"run_dir": {"type": "path", "required": True}, "point": {"type": "str"}}
        )
        try:
            run = RunDir.open(Path(args["run_dir"]))
        except (OSError, ValueError) as error:
            raise AnsibleActionFail(f"{args['run_dir']} is no directory of a run: {error}") from None
        wanted = [each for each in run.executions if args["point"] in (None, each.id)]
        if not wanted:
            raise AnsibleActionFail(f"{args['run_dir']} has no point {args['point']}")
        return result | run.facts(wanted)
