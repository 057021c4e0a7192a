"""Judge a point: complete its run directory, and end the run if it cannot go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from dumbbell.execution import calibrated
from dumbbell.execution.action import StepAction
from dumbbell.execution.judge import judge
from dumbbell.execution.words import resume


class ActionModule(StepAction):
    """Arguments: ``planned``, ``run`` (directory of the run), ``influxdb``, ``judged`` (if false, the point
    is judged later).

    Returns ``verdict`` and ``stored``, as :func:`dumbbell.execution.judge.judge` does. Fails if
    the run cannot go on: a host no longer answers, or the point was stopped by hand.
    """

    spec: ClassVar[dict[str, Any]] = {
        "run": {"type": "path", "required": True},
        "influxdb": {"type": "dict"},
        "judged": {"type": "bool", "required": True},
    }

    def step(self, run: str, influxdb: dict[str, Any] | None, judged: bool) -> dict[str, Any]:
        """Judge the fetched results, with the errors of the steps as reasons."""
        answers = self.answers()
        armed: Any = next(iter(self.said("run_armed").values()), {})
        if known := armed.get("calibration"):
            calibrated.reuse(Path(run), known, self.point.run_id, self.point.dir)
        answer = judge(self.point.dir, influxdb, answers.reasons(), judged=judged)
        if armed.get("calibrates") and calibrated.holds(answer["verdict"]) is not None:
            calibrated.remember(Path(run), armed["fingerprint"], self.point.run_id, self.point.dir)
        reasons = answer["verdict"]["reasons"]
        self._display.display(
            "\n".join([f"{self.point.facts['name']}: {answer['verdict']['state']}", *reasons])
        )
        if end := answers.end():
            answer |= {"failed": True, "msg": f"{end} {resume(run)}"}
        return answer | {"changed": True}
