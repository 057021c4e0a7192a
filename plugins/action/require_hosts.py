"""Go on only if every host of the play answers."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.action import HostAction
from dumbbell.execution.words import do_not_answer, go_on


class ActionModule(HostAction):
    """Arguments: ``resume`` (directory of a run that can go on later; '' for none).

    Reads what ``run_answers`` says of each host, and fails with the names of those that do not answer.
    """

    spec: ClassVar[dict[str, Any]] = {"resume": {"type": "str", "default": ""}}

    def act(self, resume: str) -> dict[str, Any]:
        """Fail in one sentence for all."""
        off = [host for host, answer in self.registered("run_answers").items() if answer.get("unreachable")]
        if not off:
            return {}
        return {"failed": True, "msg": do_not_answer(off, self.task_vars) + go_on(resume)}
