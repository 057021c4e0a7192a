"""Stop unless every host of the play answers, and its distribution and architecture are supported."""

from __future__ import annotations

from typing import Any, ClassVar

from dumbbell.execution.action import HostAction
from dumbbell.execution.distribution import Unsupported, family_of, programs_for
from dumbbell.execution.words import do_not_answer, go_on


class ActionModule(HostAction):
    """Argument: ``resume`` (directory of a run that can be resumed; '' for none).

    Reads ``run_answers`` of each host. Fails with the names of those that do not answer, or are not
    supported. Returns, by host, ``families`` of distributions, and ``programs``, directories below .build.
    """

    spec: ClassVar[dict[str, Any]] = {"resume": {"type": "str", "default": ""}}

    def act(self, resume: str) -> dict[str, Any]:
        """Fail with one message for all hosts."""
        answers = self.registered("run_answers")
        off = [host for host, answer in answers.items() if answer.get("unreachable")]
        if off:
            return {"failed": True, "msg": do_not_answer(off, self.task_vars) + go_on(resume)}
        families, programs, refused = {}, {}, []
        for host, answer in answers.items():
            try:
                families[host] = family_of(str(answer.get("stdout", "")))
                programs[host] = programs_for(str(answer.get("stdout", "")))
            except Unsupported as reason:
                refused.append(f"{host}: {reason}")
        if refused:
            return {"failed": True, "msg": "\n".join(["nothing was changed:", *refused])}
        return {"families": families, "programs": programs}
