"""Stop a run on a host."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.action import HostAction


class ActionModule(HostAction):
    """Argument: ``run`` (its id).

    A stopped agent ends its processes, restores the path, and records that it was
    stopped.
    """

    spec: ClassVar[dict[str, Any]] = {"run": {"type": "str", "required": True}}

    def act(self, run: str) -> dict[str, Any]:
        """Stop every agent of the run, and release the host."""
        self.command(["systemctl", "stop", f"dumbbell-agent*@{run}*"])
        self.command(["dumbbell-agent", "unlock", f"--run={run}"])
        return {"changed": True}
