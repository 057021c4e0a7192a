"""Arm the agent of a point's first phase, unless an earlier step had an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from dumbbell.execution import calibrated
from dumbbell.execution.action import StepAction
from dumbbell.run.directory import read_json


class ActionModule(StepAction):
    """Arguments: ``planned``, ``run`` (directory of the run), ``timeout_s``, ``every`` (largest number of
    points that share a calibration).

    Returns ``calibrates`` (whether this point makes a new calibration), its ``fingerprint``,
    ``calibration`` (the earlier one that is reused), and ``armed``, which
    :class:`dumbbell.execution.answers.Armed` describes, if the host has an agent in that phase.
    """

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "path", "required": True},
        "timeout_s": {"type": "int", "required": True},
        "every": {"type": "int", "required": True},
    }

    def step(self, run: str, timeout_s: int, every: int) -> dict[str, Any]:
        """Decide whether to calibrate, in the same way on every host, and arm."""
        if not self.answers().go_on or self.point.measuring:
            return {"calibrates": False}
        raw = self.point.dir / "raw"
        states = {host: read_json(raw / host / "state.json") or {} for host in self.said("run_stated")}
        digest = calibrated.fingerprint(self.point.facts["plan"], states)
        known = None if self.point.facts["last"] else calibrated.reusable(Path(run), digest, every)
        decided = {"calibrates": known is None, "fingerprint": digest, "calibration": known}
        phase = "measurement" if known else "calibration"
        if not self.point.takes_part(self.host, phase):
            return decided
        return decided | {"changed": True, "armed": self.arm(phase, timeout_s)}
