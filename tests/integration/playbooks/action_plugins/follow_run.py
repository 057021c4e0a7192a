"""Follows a phase that no agent carries out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.execution.follow import follow


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments are those of :func:`dumbbell.execution.follow.follow`."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Follow it to its end."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        args["run_dir"] = Path(args["run_dir"])
        args["t0_unix_ns"] = int(args["t0_unix_ns"])
        return result | {"stopped": follow(**args)}
