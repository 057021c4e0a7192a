"""Await the end of a point on a host, and fetch its agents' files."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from ansible.errors import AnsibleConnectionFailure

from dumbbell.execution.action import StepAction, Trouble
from dumbbell.execution.answers import SILENT
from dumbbell.execution.archive import fetch
from dumbbell.execution.follow import follow, wait_for_end

_AGAIN_S = 2


class ActionModule(StepAction):
    """Arguments: ``planned``, ``run`` (directory of the run), ``influxdb``, ``end_timeout_s`` (within which
    an agent must end after its phase), ``answer_timeout_s`` (how long to wait for a silent host).

    Shows the progress of the measurement, once for all hosts. Stops the agent if the point did not finish or
    was stopped by hand (``stopped`` has the reason). Partial results are fetched too.
    """

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "path", "required": True},
        "influxdb": {"type": "dict"},
        "end_timeout_s": {"type": "int", "required": True},
        "answer_timeout_s": {"type": "int", "required": True},
    }

    def step(
        self, run: str, influxdb: dict[str, Any] | None, end_timeout_s: int, answer_timeout_s: int
    ) -> dict[str, Any]:
        """Wait on the controller until the measurement's planned end, then fetch."""
        stopped = self._follow(run, influxdb) if self.answers().go_on else ""
        phases = [phase for phase in self.point.phases(self.host) if self._begun(phase)]
        if not phases:
            return {"stopped": stopped}
        give_up = time.monotonic() + answer_timeout_s
        while True:
            try:
                return {"stopped": stopped} | self._bring_home(phases, stopped, end_timeout_s)
            except AnsibleConnectionFailure:  # it may be rebooting, or its network is cut
                if time.monotonic() > give_up:
                    return {"stopped": stopped, "trouble": SILENT}
                time.sleep(_AGAIN_S)
                self._connection.reset()

    def _follow(self, run: str, influxdb: dict[str, Any] | None) -> str:
        """Follow the measurement. Returns why the point was stopped by hand, '' if it was not."""
        times = {
            host: said["t0_unix_ns"]
            for host, said in self.said("run_measuring").items()
            if "t0_unix_ns" in said
        }
        if not times:
            raise Trouble("no host knows when the measurement began")
        shows, t0_unix_ns = next(iter(times.items()))
        if self.host != shows:
            return wait_for_end(self.point.dir, t0_unix_ns + self.point.phase("measurement")["duration_ns"])
        return follow(
            title=str(self.point.facts["name"]).split(":")[0],
            phase="measurement",
            run_id=self.point.run_id,
            run_dir=self.point.dir,
            run=run,
            t0_unix_ns=t0_unix_ns,
            influxdb=influxdb,
        )

    def _begun(self, phase: str) -> bool:
        """Whether a phase may have an agent on this host."""
        armed = self.said("run_armed").get(self.host, {})
        if phase == "calibration":
            return self.point.measuring or bool(armed.get("calibrates"))
        return (
            self.point.measuring or self.host in self.said("run_turned") or not armed.get("calibrates", True)
        )

    def _bring_home(self, phases: list[str], stopped: str, end_timeout_s: int) -> dict[str, Any]:
        come_to_end = self.answers().go_on and not stopped
        trouble = ""
        for phase in phases:
            if not come_to_end:
                self.command(["systemctl", "stop", self.point.unit(self.host, phase)])
            elif phase == "measurement":
                try:
                    self.await_end(phase, end_timeout_s)
                except Trouble as ended:
                    trouble = str(ended)
            try:
                # Most agents have packed it already, but not an agent that was killed with its unit.
                self.command(["dumbbell-agent", "archive", self.point.folder(phase)])
                archive, home = f"{self.point.folder(phase)}.tgz", self.point.dir / "raw" / self.host / phase
                fetch(self._connection, self.shell, archive, home)
            except (Trouble, OSError) as lost:
                trouble = trouble or str(lost)
        return {"changed": True, "trouble": trouble}
