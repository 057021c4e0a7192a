"""Write down in a run directory what a host has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.rundir import write_json


class ActionModule(ActionBase):
    """Arguments: ``run_dir``, ``state`` (as docs/data-model.md has it for ``raw/HOST/state.json``)."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write the host's file."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {"run_dir": {"type": "path", "required": True}, "state": {"type": "dict", "required": True}}
        )
        host = (task_vars or {})["inventory_hostname"]
        write_json(Path(args["run_dir"], "raw", host, "state.json"), args["state"])
        return result | {"changed": True}
