"""Apply the inventory's state to a host, and release its lock."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.asked import asked_in
from dumbbell.execution.holding import holder
from dumbbell.execution.host_state import StateAction


class ActionModule(StateAction):
    """Arguments: ``run`` (its id), ``hold_s``, ``pack`` (runs that are stored)."""

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "str", "required": True},
        "hold_s": {"type": "int", "required": True},
        "pack": {"type": "list", "elements": "str", "default": []},
    }

    def act(self, run: str, hold_s: int, pack: list[str]) -> dict[str, Any]:
        """Release the host, unless another run has locked it. A world of virtual time ends with its point."""
        if self._templar.template(self.task_vars.get("lab_machine", "")) == "vtime":
            self.command(["dumbbell-agent", "unlock", f"--run={run}"])
            return {"changed": True}
        try:
            result = self.apply(
                asked=[asked_in(None, self.host, self.variables())],
                hold=holder(run, hold_s),
                release=run,
                pack=pack,
            )
        except Exception:
            # Release the host even if its state cannot be applied; the error is reported.
            self.command(["dumbbell-agent", "unlock", f"--run={run}"])
            raise
        return {key: result[key] for key in ("changed", "commands", "diff")}
