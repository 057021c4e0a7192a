"""Complete a run directory: tables, manifest, verdict, and the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.report import render
from dumbbell.states import record_state
from dumbbell.store import InfluxTarget, collect


class ActionModule(ActionBase):
    """Arguments: ``run_dir``, ``influxdb`` (url, database, username, password). Returns ``verdict``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Collect, judge, report."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {"run_dir": {"type": "path", "required": True}, "influxdb": {"type": "dict", "required": True}}
        )
        run_dir = Path(args["run_dir"])
        verdict = collect(run_dir, InfluxTarget(**args["influxdb"]))
        record_state(run_dir, verdict.state, "; ".join(verdict.reasons))
        report = render(run_dir)
        return result | {"changed": True, "verdict": json.loads(verdict.to_json()), "report": str(report)}
