"""Show how a phase is getting on until it should have ended. Agents do not need this: it only looks."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from dumbbell.store.influx import Influx, InfluxError, InfluxTarget
from dumbbell.store.run import Run
from dumbbell.store.rundir import record_state
from dumbbell.units import human

_EVERY_S = 5.0
_FIRST_S = 2.5  # flows start at whole seconds: it looks between them


class ActionModule(ActionBase):
    """Arguments: ``run_dir``, ``phase``, ``influxdb`` (url, database, username, password), ``t0_unix_ns``.

    t0 is by the controller's clock, which may differ from the one that the testbed follows.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Print a line every few seconds: time, and each flow's goodput as InfluxDB has it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "run_dir": {"type": "path", "required": True},
                "phase": {"type": "str", "required": True},
                "t0_unix_ns": {"type": "int", "required": True},
                "influxdb": {"type": "dict", "required": True},
            }
        )
        run_dir = Path(args["run_dir"])
        phase = Run.open(run_dir).point.phase(args["phase"])
        t0_s = args["t0_unix_ns"] / 1e9
        total_s = phase.duration_ns / 1e9
        display = Display()
        display.display(
            f"{phase.phase}: starts in {t0_s - time.time():.0f} s and takes {total_s:.0f} s. "
            "Ctrl-C leaves the agents at work: playbooks/resume.yml goes on, playbooks/stop.yml ends them."
        )
        time.sleep(max(0.0, t0_s - time.time()))
        record_state(run_dir, "running", phase.phase)
        os.nice(19)  # in the lab, hosts of the run are processes beside this one
        with Influx(InfluxTarget(**args["influxdb"])) as influx:
            wait_s = _FIRST_S
            while (left_s := t0_s + total_s - time.time()) > 0:
                time.sleep(min(wait_s, left_s))
                wait_s = _EVERY_S
                done_s = min(time.time() - t0_s, total_s)
                display.display(
                    f"{phase.phase}: {done_s:3.0f} of {total_s:.0f} s  {_goodputs(influx, run_dir.name)}"
                )
        return result


def _goodputs(influx: Influx, run_id: str) -> str:
    """Each connection's goodput over the last seconds, or why it is not known: a look, no result."""
    try:
        rows = influx.query(
            "SELECT mean(rate) AS rate FROM (SELECT non_negative_derivative(bytes_acked, 1s) AS rate "
            "FROM tcp_info WHERE run = $run AND side = 'sender' AND time > now() - 3s GROUP BY flow, stream) "
            "GROUP BY flow, stream",
            run=run_id,
        )
    except InfluxError as error:
        return f"({error})"
    return "  ".join(f"{row['flow']} {human(row['rate'] * 8, 'bps')}" for row in rows)
