"""Make the pages of a run's points, bring their results together, and list the run among the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.run.directory import RunDir


class ActionModule(ActionBase):
    """Argument: ``run_dir``. Returns ``verdict``; that of a run of one point is the point's."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge reused calibrations; write pages of points, results of the run, the index of all runs."""
        # Ansible loads this file into its own process, which is to stay small for as long as a run lasts.
        from dumbbell.execution.judge import judge_calibrations  # noqa: PLC0415
        from dumbbell.report.notebooks import render_points  # noqa: PLC0415
        from dumbbell.report.pages.index import render_index  # noqa: PLC0415
        from dumbbell.report.pages.summary import render_summary  # noqa: PLC0415
        from dumbbell.validity.points import summarise, verdict_of  # noqa: PLC0415

        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec({"run_dir": {"type": "path", "required": True}})
        run = RunDir.open(Path(args["run_dir"]))
        judge_calibrations(run)
        render_points(run)
        if run.sweeps:
            verdict = summarise(run)
            render_summary(run.dir)
        else:
            verdict = verdict_of(run.executions[0])
        render_index(run.dir.parent)
        return result | {"changed": True, "verdict": verdict}
