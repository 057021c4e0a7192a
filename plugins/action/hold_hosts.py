"""Lock the host for a playbook that changes it, with the same lock as runs, or release it."""

from __future__ import annotations

import os
import platform
import shlex
from typing import Any

from ansible.plugins.action import ActionBase

from dumbbell.execution.holding import owner

AGENT = "command -v dumbbell-agent >/dev/null"
LOCK = "/var/lib/dumbbell/runs/lock.json"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: ``what`` (the playbook's name), ``release``, ``hours`` (after which the lock expires).

    Fails with the name of the holder if another run has locked the host. A host without the agent has no
    lock.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Lock the host, or release this playbook's lock."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "what": {"type": "str", "required": True},
                "release": {"type": "bool", "default": False},
                "hours": {"type": "int", "default": 1},
            }
        )
        if self._task.check_mode:  # nothing is changed
            return result | {"changed": False}
        # All tasks of a playbook are children of one process.
        holder = f"{args['what']}-{platform.node()}-{os.getppid()}"
        line = give_back(holder) if args["release"] else take(holder, args["hours"])
        # Standard error has messages of SSH, so the command writes to standard output only.
        done = self._low_level_execute_command(f"{{ {line}; }} 2>&1", sudoable=True)
        if done["rc"]:
            said = " ".join(done["stdout"].split())
            return result | {"failed": True, "msg": said or f"`{line}` ended with status {done['rc']}"}
        return result | {"changed": False}


def take(holder: str, hours: int) -> str:
    """The shell line that locks a host, if it has the agent."""
    lock = [
        "dumbbell-agent",
        "lock",
        f"--run={holder}",
        f"--owner={owner()}",
        f"--for={hours}h",
    ]
    return f"if {AGENT}; then {shlex.join(lock)}; fi"


def give_back(holder: str) -> str:
    """The shell line that releases the lock, also if the playbook has removed the agent."""
    unlock = shlex.join(["dumbbell-agent", "unlock", f"--run={holder}"])
    left = f"grep --quiet --no-messages --fixed-strings {shlex.quote(holder)} {LOCK}"
    return f"if {AGENT}; then {unlock}; elif {left}; then rm {LOCK}; fi"
