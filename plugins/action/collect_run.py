"""Complete a point's run directory: tables, manifest, verdict, and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.rundir import abort, read_json, record_state, was_armed, write_json

_REASONS = "reasons.json"  # what had gone wrong when judging was left to others


class ActionModule(ActionBase):
    """Arguments: ``run_dir``, ``influxdb`` (as InfluxTarget, or null), ``reasons`` (what went wrong),
    ``judge`` (or leave that to who collects it later, with these reasons).

    Returns ``verdict``, which is `aborted` if the measurement was never begun, else what can be judged; and
    ``stored``, whether InfluxDB has every row.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Collect, judge, report."""
        # Ansible loads this file into its own process, which is to stay small for as long as a run lasts.
        from dumbbell.report.notebooks import render  # noqa: PLC0415
        from dumbbell.store.collect import collect  # noqa: PLC0415
        from dumbbell.store.influx import InfluxTarget  # noqa: PLC0415

        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "run_dir": {"type": "path", "required": True},
                "influxdb": {"type": "dict"},
                "reasons": {"type": "list", "elements": "str", "default": []},
                "judge": {"type": "bool", "default": True},
            }
        )
        run_dir = Path(args["run_dir"])
        reasons = [*(read_json(run_dir / _REASONS) or []), *args["reasons"]]
        if not args["judge"]:
            write_json(run_dir / _REASONS, reasons)
            return result | {
                "changed": True,
                "verdict": {"state": "measured", "reasons": reasons},
                "stored": False,
            }
        stored = False
        if reasons and not was_armed(run_dir):
            abort(run_dir, reasons)
        else:
            record_state(run_dir, "collecting")
            influx = InfluxTarget(**args["influxdb"]) if args["influxdb"] else None
            verdict = collect(run_dir, influx, reasons)
            record_state(run_dir, verdict.state, "; ".join(verdict.reasons))
            render(run_dir)
            rows = read_json(run_dir / "manifest.json")["rows"]["influxdb"]
            stored = rows is not None and all(of["stored"] == of["spooled"] for of in rows.values())
        return result | {"changed": True, "verdict": read_json(run_dir / "verdict.json"), "stored": stored}
