"""Judge points, write the pages of a run's points, the summary of the run, and the index of all runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.run.directory import RunDir


class ActionModule(ActionBase):
    """Arguments: ``run_dir``; ``measured``, points to judge first, each with its world's end; ``influxdb``.

    One task does it all, because loading what judges and draws takes longer than a point. Returns
    ``verdict``; for a run of one point it is the point's.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge, then write the pages, the summary and the index."""
        # Ansible's main process loads this file, and has to stay small during a run.
        from dumbbell.execution.judge import judge, judge_calibrations  # noqa: PLC0415
        from dumbbell.report.notebooks import render_points  # noqa: PLC0415
        from dumbbell.report.pages.index import render_index  # noqa: PLC0415
        from dumbbell.report.pages.summary import render_summary  # noqa: PLC0415
        from dumbbell.validity.points import summarise, verdict_of  # noqa: PLC0415

        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "run_dir": {"type": "path", "required": True},
                "measured": {"type": "list", "elements": "raw", "default": []},
                "influxdb": {"type": "dict"},
            }
        )
        for point, ended in args["measured"]:
            reasons = [ended["reason"]] if ended["reason"] else []
            found = judge(Path(point["run_dir"]), args["influxdb"], reasons, judged=True)["verdict"]
            self._display.display("\n".join([f"{point['name']}: {found['state']}", *found["reasons"]]))
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
