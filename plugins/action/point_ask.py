"""Ask the agent of an interrupted measurement whether it has gone on without a controller."""

from __future__ import annotations

import json
import shlex
from typing import Any

from dumbbell.execution.action import StepAction
from dumbbell.execution.on_host import in_words

_GOES_ON = ("waiting", "running", "done")


class ActionModule(StepAction):
    """Argument: ``planned``. Returns ``goes_on``, and ``state``, the agent's state with its reason."""

    def step(self) -> dict[str, Any]:
        """Read its status."""
        if not self.on.point.takes_part(self.host, "measurement"):
            return {"goes_on": True}
        said = self.shell(f"cat {shlex.quote(self.on.point.folder('measurement'))}/status.json || true")
        status = json.loads(said or '{"state": "silent"}')
        return {"goes_on": status["state"] in _GOES_ON, "state": in_words(status)}
