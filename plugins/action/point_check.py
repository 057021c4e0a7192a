"""Check whether a host can do what points ask for, and lock it for their run."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution import steps
from dumbbell.execution.host_state import StateAction


class ActionModule(StateAction):
    """Arguments: ``points`` (as plan_run returns them), ``hold`` (id of the run that locks the host; '' to
    check only), ``hold_s``. Returns what :func:`dumbbell.execution.steps.check` does.
    """

    spec: ClassVar[dict[str, Any]] = {
        "points": {"type": "list", "elements": "dict", "required": True},
        "hold": {"type": "str", "default": ""},
        "hold_s": {"type": "int", "default": 0},
    }

    def act(self, **args: Any) -> dict[str, Any]:
        """Try each requested state in check mode."""
        return steps.check(self, self.host, self.variables(), **args)
