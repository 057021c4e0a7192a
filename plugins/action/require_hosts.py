"""Stop unless every host of the play answers."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.action import HostAction
from dumbbell.execution.words import do_not_answer, go_on


class ActionModule(HostAction):
    """Argument: ``resume`` (directory of a run that can be resumed; '' for none).

    Reads ``run_answers`` of each host, and fails with the names of those that do not answer.
    """

    spec: ClassVar[dict[str, Any]] = {"resume": {"type": "str", "default": ""}}

    def act(self, resume: str) -> dict[str, Any]:
        """Fail with one message for all hosts."""
        off = [host for host, answer in self.registered("run_answers").items() if answer.get("unreachable")]
        if not off:
            return {}
        return {"failed": True, "msg": do_not_answer(off, self.task_vars) + go_on(resume)}
