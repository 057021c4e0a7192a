"""Measure the round trip of the path that a sender's first flow takes."""

from __future__ import annotations

from typing import Any

from dumbbell.execution import steps
from dumbbell.execution.action import StepAction


class ActionModule(StepAction):
    """Argument: ``planned``. Returns what :func:`dumbbell.execution.steps.ping` does."""

    def step(self) -> dict[str, Any]:
        """Ping over the idle path."""
        return steps.ping(self.on)
