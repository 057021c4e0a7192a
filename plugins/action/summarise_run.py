"""Write the pages of a run's points, the summary of the run, and the index of all runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.run.directory import RunDir


class ActionModule(ActionBase):
    """Argument: ``run_dir``. Returns ``verdict``; for a run of one point it is the point's."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge reused calibrations, then write the pages, the summary and the index."""
        # Ansible's main process loads this file, and has to stay small during a run.
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
