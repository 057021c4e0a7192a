"""Report hosts on which a run may go on, because they did not answer when it was stopped."""

from __future__ import annotations

from typing import Any

from dumbbell.execution.action import HostAction
from dumbbell.execution.answers import SILENT
from dumbbell.execution.words import do_not_answer

_REST = " Where they are on, their agents go on alone to the end of the phase."


class ActionModule(HostAction):
    """Reads ``run_stopped`` of each host; fails with the errors."""

    def act(self) -> dict[str, Any]:
        """Fail with one message for all hosts that do not answer, and one for each other error."""
        troubles = {
            host: answer["trouble"]
            for host, answer in self.registered("run_stopped").items()
            if answer.get("trouble")
        }
        silent = [host for host, trouble in troubles.items() if trouble == SILENT]
        said = [do_not_answer(silent, self.task_vars) + _REST] if silent else []
        said += [f"{host}: {trouble}" for host, trouble in troubles.items() if trouble != SILENT]
        return {"failed": True, "msg": "; ".join(said)} if said else {}
