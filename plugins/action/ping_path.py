"""Measure the round trip of the path that a sender's first flow takes."""

from __future__ import annotations

from typing import Any

from dumbbell.execution.action import StepAction
from dumbbell.plan.calibration import PING_INTERVAL_NS

PING_COUNT = 21  # fewer than the calibration has, which proves the result


class ActionModule(StepAction):
    """Argument: ``planned``. Answers ``said``, the output of ping; nothing where no flow is sent."""

    def step(self) -> dict[str, Any]:
        """Over an idle path; lost echoes are no trouble as long as some come back.

        At the pace of the calibration's pings: a host that sleeps longer between two takes longer to answer.
        """
        peer = self.point.peer(self.host)
        if not peer or not self.answers().go_on:
            return {}
        return {
            "said": self.shell(f"ping -n -c {PING_COUNT} -i {PING_INTERVAL_NS / 1e9} {peer} || test $? = 1")
        }
