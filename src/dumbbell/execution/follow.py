"""Show the progress of a phase until its planned end. Agents do not depend on this."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

from ansible.errors import AnsiblePromptInterrupt, AnsiblePromptNoninteractive
from ansible.utils.display import Display

from dumbbell.execution.steps import STOPPED
from dumbbell.ingest.influx import Influx, InfluxError, InfluxTarget
from dumbbell.run.directory import RunDir
from dumbbell.run.progress import describe, goodputs, line
from dumbbell.run.record import record_state

_LOOK_S = 5.0
_DRAW_S = 1.0
_LOG_S, _LOG_LINES = 10.0, 20  # shortest time between two lines of a log, and most lines of a phase
_LINE = "\033[A\r{}\033[K"  # on a terminal, replaces the line above
_QUESTION = "[d]etach and leave the agents at work, [s]top them, or [c]ontinue? Then Enter."
_LOG_HINT = "Ctrl-C leaves the agents at work: playbooks/resume.yml goes on, playbooks/stop.yml ends them."
_DETACHED = """\
The agents go on alone.
  to see how they get on:   fab follow --run={0}
  to await and judge them:  ansible-playbook playbooks/resume.yml -e run={0}
  to end them:              ansible-playbook playbooks/stop.yml -e run={0}"""

Looks = Iterator[dict[str, float] | str]  # the flows' goodputs, or why they are not known


def follow(
    *,
    title: str,
    phase: str,
    run_id: str,
    run_dir: Path,
    run: str,
    t0_unix_ns: int,
    influxdb: Mapping[str, Any] | None,
) -> str:
    """Show time and flows of a phase from InfluxDB; returns the reason to stop its agents, '' for none.

    ``title``, ``run_id`` and ``run_dir`` belong to the point, ``run`` is the directory of the whole run,
    ``influxdb`` has the fields of InfluxTarget, or is None. t0 is by the controller's clock, which may differ
    from the testbed's. On a terminal a line is drawn again each second, and Ctrl-C asks what to do: detaching
    ends the playbook, as Ctrl-C does without a terminal.
    """
    planned = RunDir.open(run_dir).executions[0].plan.points[0].phase(phase)  # type: ignore[arg-type]
    screen = _Terminal() if _is_terminal() else _Log(planned.duration_ns / 1e9)

    def show_until(end_ns: int, flows: Callable[[int], str]) -> str:
        while (at_ns := time.time_ns() - t0_unix_ns) < end_ns:
            text = line(title, planned, at_ns, flows(at_ns), screen.columns)
            if answer := screen.show(text, (end_ns - at_ns) / 1e9):
                return answer
        return ""

    answer = show_until(0, lambda _: "")
    if not answer:
        record_state(run_dir, "running", planned.phase)
        with _look(influxdb, run_id, screen.waits) as looks:
            answer = show_until(planned.duration_ns, lambda at_ns: describe(planned, at_ns, next(looks)))
    if answer == "detach":
        Display().display(_DETACHED.format(run))
        os.kill(os.getppid(), signal.SIGINT)
        # Ansible now ends its workers. A worker that is sending its result would leave the queue locked.
        signal.pause()
    if answer != "stop":
        return ""
    stopped = f"the {planned.phase} was stopped by hand"
    (run_dir / STOPPED).write_text(stopped)
    return stopped


@contextmanager
def _look(influxdb: Mapping[str, Any] | None, run_id: str, waits: bool) -> Iterator[Looks]:
    if influxdb is None:
        yield repeat("no samples before its end")
        return
    with (
        Influx(InfluxTarget(**influxdb)) as influx,
        # In the lab, the run's hosts are processes on the same machine.
        ThreadPoolExecutor(1, initializer=os.nice, initargs=(19,)) as thread,
    ):
        yield _looks(lambda: thread.submit(goodputs, influx, run_id), waits)


def _looks(ask: Callable[[], Future[dict[str, float]]], waits: bool) -> Looks:
    """The latest goodputs, or why they are not known. With ``waits`` each look waits for a pending answer."""
    found: dict[str, float] | str = "no samples yet"
    while True:
        asked_s, answer = time.monotonic(), ask()
        while not (waits or answer.done()):
            yield found
        try:
            found = answer.result()
        except InfluxError as error:
            found = f"({error})"
        yield found
        while time.monotonic() < asked_s + _LOOK_S:
            yield found


class _Log:
    """Lines in a log."""

    columns = None
    waits = True

    def __init__(self, phase_s: float) -> None:
        self._step_s = max(_LOG_S, phase_s / _LOG_LINES)
        Display().display(_LOG_HINT)

    def show(self, text: str, left_s: float) -> str:
        """Show a line, and wait for the next one or for ``left_s``, whichever is shorter."""
        Display().display(text)
        time.sleep(min(left_s, self._step_s))
        return ""


class _Terminal:
    """One line, and a question after Ctrl-C. Ansible sees Ctrl-C as a character only while it prompts."""

    waits = False

    @property
    def columns(self) -> int | None:
        """Width of the terminal."""
        return _columns()

    def show(self, text: str, left_s: float) -> str:
        """Show the line for at most ``left_s``. Returns `detach` or `stop` if the user chose it, else ''."""
        try:
            seconds = min(left_s, _DRAW_S)
            Display().prompt_until(_LINE.format(text), private=True, seconds=seconds, complete_input=())
            return ""
        except AnsiblePromptInterrupt:
            pass
        try:
            answer = Display().prompt_until(_QUESTION, seconds=left_s)
        except AnsiblePromptInterrupt:  # a second Ctrl-C
            return "detach"
        return {b"d": "detach", b"s": "stop"}.get(answer.strip().lower()[:1], "")


def _is_terminal() -> bool:
    """Whether there is a terminal to draw on and to ask at. Prints an empty line to draw on."""
    try:
        if _columns():
            Display().prompt_until("", private=True, seconds=0)
            return True
    except AnsiblePromptNoninteractive:
        pass
    return False


def _columns() -> int | None:
    """Width of the terminal of Ansible's main process; None without one. Its workers have no terminal."""
    try:
        output = os.open(f"/proc/{os.getppid()}/fd/1", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.get_terminal_size(output).columns or 80
    except OSError:
        return None
    finally:
        os.close(output)
