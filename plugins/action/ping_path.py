"""Measure the round trip of the path that a sender's first flow takes."""

from __future__ import annotations

from typing import Any

from dumbbell.execution.action import StepAction
from dumbbell.plan.calibration import PING_INTERVAL_NS

PING_COUNT = 21  # fewer than in the calibration, which checks the result
TURN_S = PING_COUNT * PING_INTERVAL_NS / 1e9 + 0.5  # time of one sender, including its last reply


class ActionModule(StepAction):
    """Argument: ``planned``. Returns ``said``, the output of ping; nothing for hosts that send no flow.

    Senders measure one after the other, at fixed times, because they would lengthen each other's round trips.
    With `throttle` Ansible may busy-wait for a process, which in virtual time then never runs.
    """

    def step(self) -> dict[str, Any]:
        """Ping over the idle path; lost echoes are no error as long as some come back.

        The interval is that of the calibration's pings, because a host answers later after a longer sleep.
        """
        senders = [host for host in self.hosts if self.point.peer(host)]
        if self.host not in senders or not self.answers().go_on:
            return {}
        wait_s = senders.index(self.host) * TURN_S
        ping = f"ping -n -c {PING_COUNT} -i {PING_INTERVAL_NS / 1e9} {self.point.peer(self.host)}"
        return {"said": self.shell(f"sleep {wait_s:g}; {ping} || test $? = 1")}
