"""Base classes of a run's actions: they run commands on the host, and return answers instead of failing."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from dumbbell.execution.answers import SILENT, Answer, Answers, Armed
from dumbbell.execution.point import PlannedPoint

# Names that a point's tasks register, in order. The tasks of own_delay.yml are skipped if the delay is known.
OWN_DELAY = ("run_pinged", "run_trimmed", "run_restated")
STEPS = ("run_stated", *OWN_DELAY, "run_armed", "run_calibrating", "run_turned", "run_measuring", "run_ended")


class Trouble(Exception):
    """An error on a host; the message is for people."""


class HostAction(ActionBase):  # type: ignore[misc]
    """An action that returns an error as the answer ``trouble`` ('' for none) instead of failing.

    If a host no longer answers, ``trouble`` is :data:`~dumbbell.execution.answers.SILENT`. The host stays
    in the play, so that its results can be fetched when it is back.
    """

    spec: ClassVar[dict[str, Any]] = {}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action, and return its answer."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        assert task_vars is not None
        _, args = self.validate_argument_spec(self.spec)
        self.task_vars = task_vars
        self.host = str(task_vars["inventory_hostname"])
        answer: dict[str, Any]
        try:
            answer = self.act(**args)
        except AnsibleConnectionFailure:
            answer = {"trouble": SILENT}
        except Trouble as trouble:
            answer = {"trouble": str(trouble)}
        answer = {"trouble": "", "changed": False} | answer
        if answer["trouble"]:
            self._display.warning(f"{self.host}: {answer['trouble']}")
        return result | answer

    def act(self, **args: Any) -> dict[str, Any]:
        """Do the work of the action and return its answer. Raises :class:`Trouble` on an error."""
        raise NotImplementedError

    # answers of other hosts

    @property
    def hosts(self) -> Sequence[str]:
        """All hosts of the play, including those that no longer answer."""
        hosts: Sequence[str] = self.task_vars["ansible_play_hosts_all"]
        return hosts

    def registered(self, name: str) -> dict[str, Answer]:
        """The values that hosts have registered under a name, by host."""
        found = {host: self.task_vars["hostvars"][host].get(name) for host in self.hosts}
        return {host: answer for host, answer in found.items() if isinstance(answer, Mapping)}

    # on the host

    def command(self, argv: Sequence[str], stdin: bytes | None = None) -> str:
        """Run a command on the host and return its standard output. Raises :class:`Trouble` if it fails."""
        return self.shell(shlex.join(argv), stdin)

    def shell(self, line: str, stdin: bytes | None = None) -> str:
        """Run a shell line on the host, without Python, which would cost more than most steps."""
        # Commands write errors to standard output too, because standard error may have only messages of SSH.
        done = self._low_level_execute_command(f"{{ {line}; }} 2>&1", in_data=stdin, sudoable=True)
        if done["rc"]:
            said = " ".join(done["stdout"].split())
            raise Trouble(f"`{line}` failed: {said or 'it ended with status ' + str(done['rc'])}")
        return str(done["stdout"])


class StepAction(HostAction):
    """A step of a point. It also returns the ``run_id`` of the point, and can read all hosts' answers."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the step, and return its answer."""
        self.spec = {"planned": {"type": "dict", "required": True}} | self.spec  # type: ignore[misc]
        answer = super().run(tmp, task_vars)
        return answer | {"run_id": self.point.run_id}

    def act(self, planned: Mapping[str, Any], **args: Any) -> dict[str, Any]:  # type: ignore[override]
        """Run the step for a point."""
        self.point = PlannedPoint(planned)
        return self.step(**args)

    def step(self, **args: Any) -> dict[str, Any]:
        """Do the work of the step and return its answer. Raises :class:`Trouble` on an error."""
        raise NotImplementedError

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
        unit = shlex.quote(self.point.unit(self.host, phase))
        waits = self._await(phase, "armed", timeout_s)
        said = last_json(self.shell(f"systemctl start {unit} && {waits}"))
        received = time.time_ns()
        if said["state"] != "armed":
            raise Trouble(in_words(said))
        return {
            "now_unix_ns": said["now_unix_ns"],
            "received_unix_ns": received,
            "lead_ns": said["lead_ns"],
        }

    def await_end(self, phase: str, timeout_s: int) -> None:
        """Wait until the agent of a phase has ended. Raises :class:`Trouble` if its state is not ``done``."""
        said = last_json(self.shell(self._await(phase, "ended", timeout_s)))
        if said["state"] != "done":
            raise Trouble(in_words(said))

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
