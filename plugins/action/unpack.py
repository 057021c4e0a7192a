"""Unpack on the controller what came home from a host."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Arguments: ``src`` (a .tgz), ``dest`` (a directory, which is made).

    ansible.builtin.unarchive would start a Python on the controller, which stays as long as the playbook.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Unpack."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        spec = {name: {"type": "path", "required": True} for name in ("src", "dest")}
        _, args = self.validate_argument_spec(spec)
        Path(args["dest"]).mkdir(parents=True, exist_ok=True)
        command = ["tar", "--extract", "--gzip", "--file", args["src"], "--directory", args["dest"]]
        done = subprocess.run([*command, "--no-same-owner"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise AnsibleActionFail(f"{args['src']} cannot be unpacked: {done.stderr.strip()}")
        return result | {"changed": True}
