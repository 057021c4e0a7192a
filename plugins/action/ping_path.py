"""Measure the round trip of the path that a sender's first flow takes."""

from __future__ import annotations

from typing import Any

from dumbbell.execution.action import StepAction
from dumbbell.plan.calibration import PING_INTERVAL_NS

PING_COUNT = 21  # fewer than the calibration has, which proves the result
TURN_S = PING_COUNT * PING_INTERVAL_NS / 1e9 + 0.5  # of one sender, with its last reply


class ActionModule(StepAction):
    """Argument: ``planned``. Answers ``said``, the output of ping; nothing where no flow is sent.

    Senders measure one after the other, by time: they would lengthen each other's round trips. With
    `throttle` Ansible may loop until a process has ended; in virtual time that process never gets its turn.
    """

    def step(self) -> dict[str, Any]:
        """Over an idle path; lost echoes are no trouble as long as some come back.

        At the pace of the calibration's pings: a host that sleeps longer between two takes longer to answer.
        """
        senders = [host for host in self.hosts if self.point.peer(host)]
        if self.host not in senders or not self.answers().go_on:
            return {}
        wait_s = senders.index(self.host) * TURN_S
        ping = f"ping -n -c {PING_COUNT} -i {PING_INTERVAL_NS / 1e9} {self.point.peer(self.host)}"
        return {"said": self.shell(f"sleep {wait_s:g}; {ping} || test $? = 1")}
