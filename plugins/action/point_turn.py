"""Await the end of the calibration on a host, and arm the measurement."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from dumbbell.execution.action import StepAction, Trouble


class ActionModule(StepAction):
    """Arguments: ``planned``, ``end_timeout_s``, ``arm_timeout_s``.

    Returns ``armed``, the fields of :class:`dumbbell.execution.answers.Armed`, of the measurement's agent.
    """

    spec: ClassVar[dict[str, Any]] = {
        "end_timeout_s": {"type": "int", "required": True},
        "arm_timeout_s": {"type": "int", "required": True},
    }

    def step(self, end_timeout_s: int, arm_timeout_s: int) -> dict[str, Any]:
        """Wait on the controller until the calibration's planned end, then on the host until it has ended."""
        if not self.answers().go_on:
            return {}
        if self.point.takes_part(self.host, "calibration"):
            ends_unix_ns = (
                self.said("run_calibrating")[self.host]["t0_unix_ns"]
                + self.point.phase("calibration")["duration_ns"]
            )
            time.sleep(max(0, ends_unix_ns - time.time_ns()) / 1e9)
            try:
                self.await_end("calibration", end_timeout_s)
            except Trouble as trouble:
                raise Trouble(f"calibration: {trouble}") from None
        if not self.point.takes_part(self.host, "measurement"):
            return {}
        return {"changed": True, "armed": self.arm("measurement", arm_timeout_s)}
