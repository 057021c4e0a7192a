"""Stop a run unless every host can do what it asks for."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.action import HostAction
from dumbbell.execution.answers import SILENT, trouble_of
from dumbbell.execution.words import do_not_answer, go_on


class ActionModule(HostAction):
    """Arguments: ``run`` (as plan_run returns it), ``resume`` (its directory, if it can be resumed).

    Reads ``run_checked`` of each host. If a host cannot run it, every host is released, and the hosts that
    cannot fail with their reason, which ends the play for all hosts. Returns ``boots``, whether any host has
    to boot another kernel.
    """

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "dict", "required": True},
        "resume": {"type": "str", "default": ""},
    }

    def act(self, run: dict[str, Any], resume: str) -> dict[str, Any]:
        """Release the host, and fail if it cannot run the plan."""
        checked = self.registered("run_checked")
        troubles = {host: trouble_of(answer) for host, answer in checked.items()}
        if not any(troubles.values()):
            return {"boots": any(answer.get("boots") for answer in checked.values())}
        own = troubles.get(self.host, "")
        if own != SILENT:
            self.shell(f"dumbbell-agent unlock --run={run['run_id']} || test $? = 127")
        silent = [host for host, trouble in troubles.items() if trouble == SILENT]
        if self.host in silent[:1]:
            return {"failed": True, "msg": do_not_answer(silent, self.task_vars) + go_on(resume)}
        return {"failed": True, "msg": own} if own and own != SILENT else {}
