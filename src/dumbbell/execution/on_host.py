"""A point as one host sees it: its plan, the answers of all hosts so far, and a way to reach the host."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dumbbell.execution.answers import Answer, Answers, Armed
from dumbbell.execution.point import PlannedPoint
from dumbbell.execution.reach import Reach, Trouble

# Names under which the answers to a point's steps are kept, in order. Those of the path's own delay are not
# given if the delay is known.
OWN_DELAY = ("run_pinged", "run_trimmed", "run_restated")
STEPS = ("run_stated", *OWN_DELAY, "run_armed", "run_calibrating", "run_turned", "run_measuring", "run_ended")


@dataclass(frozen=True)
class PointOnHost:
    """What a step of a point needs on one host."""

    point: PlannedPoint
    host: str
    hosts: Sequence[str]  # all hosts of the run, including those that no longer answer
    reach: Reach
    registered: Callable[[str], Mapping[str, Answer]]  # all hosts' answers that have a name
    tell: Callable[[str], None]  # shows a text to the user

    def said(self, step: str) -> dict[str, Answer]:
        """All hosts' answers to a step of this point. If Ansible ended the step, an answer has no run_id."""
        return {
            host: answer
            for host, answer in self.registered(step).items()
            if answer.get("run_id", self.point.run_id) == self.point.run_id
        }

    def answers(self) -> Answers:
        """All answers of the hosts for this point."""
        trims = any(answer.get("trims") for answer in self.said("run_stated").values())
        steps = STEPS if trims else [step for step in STEPS if step not in OWN_DELAY]
        return Answers(self.hosts, [self.said(step) for step in steps])

    def agents(self, step: str) -> list[Armed]:
        """Return the agents that a step has armed."""
        said = [answer["armed"] for answer in self.said(step).values() if answer.get("armed")]
        return [Armed(**{key: int(value) for key, value in armed.items()}) for armed in said]

    def arm(self, phase: str, timeout_s: int) -> dict[str, int]:
        """Start the agent of a phase and wait until it is armed. Returns the fields of :class:`Armed`."""
        unit = self.point.unit(self.host, phase)
        asked = time.time_ns()
        said = last_json(self.reach.start(unit, self._await(phase, "armed", timeout_s)))
        received = time.time_ns()
        if said["state"] != "armed":
            raise Trouble(in_words(said))
        return {
            "asked_unix_ns": asked,
            "now_unix_ns": said["now_unix_ns"],
            "received_unix_ns": received,
            "lead_ns": said["lead_ns"],
        }

    def await_end(self, phase: str, timeout_s: int, *, packed: bool) -> None:
        """Wait until a phase is over and, if asked, its results are packed.

        Raises :class:`Trouble` if the state of its agent is not ``done``.
        """
        said = last_json(self.reach.shell(self._await(phase, "ended" if packed else "over", timeout_s)))
        if said["state"] != "done":
            raise Trouble(in_words(said))

    def stop(self, phase: str) -> None:
        """Stop the agent of a phase."""
        self.reach.stop(self.point.unit(self.host, phase))

    def _await(self, phase: str, state: str, timeout_s: int) -> str:
        folder = self.point.folder(phase)
        return shlex.join(["dumbbell-agent", "await", folder, state, "--timeout", f"{timeout_s}s"])


def last_json(said: str) -> dict[str, Any]:
    """Decode an agent's answer: the last line, since other programs may print warnings before it."""
    answer: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return answer


def in_words(status: Mapping[str, Any]) -> str:
    """The state of an agent, with the reason."""
    return ": ".join(str(word) for word in (status["state"], status.get("reason")) if word)
