"""Compute how much to subtract from the emulated delay for the path's own delay."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from dumbbell.execution import own_delay
from dumbbell.execution.action import StepAction, Trouble


class ActionModule(StepAction):
    """Arguments: ``planned``, ``run`` (directory of the run), ``max_us`` and ``attempts`` as in
    :class:`dumbbell.execution.own_delay.Asked`.

    Returns ``trim``, the fields of :class:`dumbbell.execution.own_delay.Trim`, the same on every host.
    """

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "path", "required": True},
        "max_us": {"type": "int", "required": True},
        "attempts": {"type": "int", "required": True},
    }

    def step(self, run: str, max_us: int, attempts: int) -> dict[str, Any]:
        """Compute the correction, and record the final one for later points."""
        path = self.point.path
        if path is None or not self.answers().go_on:
            return {"trim": {"changed": False, "again": False}}
        asked = own_delay.Asked(
            rtt_ns=path["rtt_ns"],
            jitters=path["jitters"],
            tolerance=self.point.facts["plan"]["validity"]["rtt_tolerance"],
            max_us=max_us,
            attempts=attempts,
        )
        pings = [said["said"] for said in self.said("run_pinged").values() if said.get("said")]
        former = next((said["trim"] for said in self.said("run_trimmed").values() if said.get("trim")), None)
        try:
            found = own_delay.attempt(own_delay.Trim(**former) if former else None, pings, asked)
        except (IndexError, ZeroDivisionError):
            raise Trouble("no echo came back over the path: its own delay is not known") from None
        if not found.again and self.host == self.hosts[0]:
            own_delay.remember(Path(run), path, found.trim_us)
        return {"trim": asdict(found)}
