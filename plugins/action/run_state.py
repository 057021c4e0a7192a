"""Record a transition of a run's state in its events.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.rundir import record_state


class ActionModule(ActionBase):
    """Arguments: ``run_dir``, ``state``, ``reason``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Append the event."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "run_dir": {"type": "path", "required": True},
                "state": {"type": "str", "required": True},
                "reason": {"type": "str", "default": ""},
            }
        )
        record_state(Path(args["run_dir"]), args["state"], args["reason"])
        return result
