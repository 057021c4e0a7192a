"""Bring the results of a run's points together, and list the run among the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.report.index import render_index
from dumbbell.report.summary import render_summary
from dumbbell.store import summarise
from dumbbell.store.run import read_json
from dumbbell.store.rundir import RunDir


class ActionModule(ActionBase):
    """Argument: ``run_dir``. Returns ``verdict``; that of a run of one point is the point's."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write verdict, table of flows and page of a run with several points, and the index of all runs."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec({"run_dir": {"type": "path", "required": True}})
        run = RunDir.open(Path(args["run_dir"]))
        if run.sweeps:
            summarise(run)
            render_summary(run.dir)
        render_index(run.dir.parent)
        return result | {"changed": True, "verdict": read_json(run.dir / "verdict.json")}
