"""Base classes of a run's actions: Ansible's way to reach a host, and answers in place of failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from dumbbell.execution import archive, engine, reach
from dumbbell.execution.answers import SILENT, Answer
from dumbbell.execution.on_host import PointOnHost
from dumbbell.execution.point import PlannedPoint
from dumbbell.execution.reach import Reach, Silent, Trouble

_DELIVER = "{ systemctl kill --signal=SIGUSR1 telegraf.service 2>/dev/null || true; }"


class HostAction(ActionBase, Reach):  # type: ignore[misc]
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
        except (Silent, AnsibleConnectionFailure):
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

    # the way to the host

    def shell(self, line: str, stdin: bytes | None = None) -> str:
        """Run a shell line on the host, without Python, which would cost more than most steps."""
        # Commands write errors to standard output too, because standard error may have only messages of SSH.
        try:
            done = self._low_level_execute_command(f"{{ {line}; }} 2>&1", in_data=stdin, sudoable=True)
        except AnsibleConnectionFailure as error:
            raise Silent from error
        return reach.output(line, done["rc"], str(done["stdout"]))

    def fetch(self, archives: Mapping[str, Path]) -> None:
        """Copy agents' archives as root, and let Telegraf send the last rows, for which the verdict waits."""
        archive.fetch(self.shell, archives, _DELIVER)

    def apply(self, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
        """Apply a state by the engine that the host keeps; in Ansible's check mode the host gets no files."""
        if self._task.check_mode:
            return self.module("point_state", **arguments)
        result = engine.call(self.shell, self._python(), check=check, arguments=arguments)
        for warning in result.pop("warnings"):
            self._display.warning(f"{self.host}: {warning}")
        return result

    def _python(self) -> str:
        """The host's Python, as its variables or Ansible's discovery name it."""
        named = str(self._templar.template(self.task_vars.get("ansible_python_interpreter", "auto")))
        if not named.startswith("auto"):
            return named
        return str(self.task_vars.get("ansible_facts", {}).get("discovered_interpreter_python", "python3"))

    def module(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Run a module on the host and return its result."""
        try:
            result: dict[str, Any] = self._execute_module(
                module_name=f"dumbbell.testbed.{name}", module_args=arguments, task_vars=self.task_vars
            )
        except AnsibleConnectionFailure as error:
            raise Silent from error
        if result.get("unreachable"):
            raise Silent
        if result.get("failed"):
            raise Trouble(_failure(result) or f"{name} failed, and did not say why")
        for warning in result.get("warnings", ()):
            self._display.warning(f"{self.host}: {text_of(warning)}")
        return result

    def reconnect(self) -> None:
        """Connect anew after the host did not answer."""
        self._connection.reset()


class StepAction(HostAction):
    """A step of a point. It also returns the ``run_id`` of the point, and can read all hosts' answers."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the step, and return its answer."""
        self.spec = {"planned": {"type": "dict", "required": True}} | self.spec  # type: ignore[misc]
        answer = super().run(tmp, task_vars)
        return answer | {"run_id": self.on.point.run_id}

    def act(self, planned: Mapping[str, Any], **args: Any) -> dict[str, Any]:  # type: ignore[override]
        """Run the step for a point."""
        self.on = PointOnHost(
            PlannedPoint(planned), self.host, self.hosts, self, self.registered, self._display.display
        )
        return self.step(**args)

    def step(self, **args: Any) -> dict[str, Any]:
        """Do the work of the step and return its answer. Raises :class:`Trouble` on an error."""
        raise NotImplementedError


def text_of(warning: Any) -> str:
    """The text of a module's warning, which Ansible passes as a text or as a record of the event."""
    event = getattr(warning, "event", None)
    return str(warning if event is None else event.msg)


def _failure(result: Mapping[str, Any]) -> str:
    """Why a module failed: its message, else that of the exception that ended it, else what it printed."""
    error = result.get("exception")
    raised = str(error).strip().splitlines()[-1:] if error else []
    return str(result.get("msg") or "".join(raised) or result.get("module_stderr") or "")
