"""Send t0 of a phase to a host."""

from __future__ import annotations

import json
import shlex
from typing import Any, ClassVar

from dumbbell.execution.action import StepAction
from dumbbell.execution.answers import SECOND_NS, behind_ns, start_unix_ns
from dumbbell.run.directory import record_state


class ActionModule(StepAction):
    """Arguments: ``planned``, ``phase``, ``armed_by`` (names of the steps that may have armed the agents),
    ``margin_s`` (time to send t0).

    Returns ``t0_unix_ns``, by the controller's clock.
    """

    spec: ClassVar[dict[str, Any]] = {
        "phase": {"type": "str", "required": True, "choices": ["calibration", "measurement"]},
        "armed_by": {"type": "list", "elements": "str", "required": True},
        "margin_s": {"type": "float", "required": True},
    }

    def step(self, phase: str, armed_by: list[str], margin_s: float) -> dict[str, Any]:
        """Send t0 if every agent is armed. A measurement that went on alone has it already."""
        if not self.answers().go_on:
            return {}
        start = f"{self.point.folder(phase)}/start.json"
        if self.point.measuring:
            if not self.point.takes_part(self.host, phase):
                return {}
            return {"t0_unix_ns": json.loads(self.command(["cat", start]))["t0_unix_ns"]}
        if self.host == self.hosts[0]:
            record_state(self.point.dir, "armed", phase)
        agents = next(filter(None, map(self.agents, armed_by)))
        t0_unix_ns = start_unix_ns(agents, round(margin_s * SECOND_NS))
        if self.point.takes_part(self.host, phase):
            part = shlex.quote(f"{start}.part")  # renamed when complete
            make = f"install -o dumbbell -g dumbbell -m 0640 /dev/stdin {part}"
            text = json.dumps({"t0_unix_ns": t0_unix_ns}) + "\n"
            self.shell(f"{make} && mv {part} {shlex.quote(start)}", stdin=text.encode())
        return {"changed": True, "t0_unix_ns": t0_unix_ns + behind_ns(agents)}
