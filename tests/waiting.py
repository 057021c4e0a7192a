"""Runs that something happens to while they measure."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from playbooks import start_playbook

TIMEOUT_S = 900
PREPARING = '"state": "preparing"'
MEASURING = '"state": "running", "reason": "measurement"'


def wait_until(condition: Callable[[], bool], playbook: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert playbook is None or playbook.poll() is None, "the playbook has ended"
        assert time.monotonic() < deadline
        time.sleep(0.1)


def run_until_measuring(
    scenario: Path,
    folder: Path,
    then: Callable[[subprocess.Popen[str]], object],
    *extra: str,
    point: str = "",
    state: str = MEASURING,
) -> tuple[Path, str, int]:
    """Directory of the run, what was said, and the exit code, of a run that meets `then` while it measures.

    With another ``state``, as events have it, it meets `then` from that state on.

    The playbook has ended, or is killed once `then` has returned without waiting for it.
    """
    results = folder / "results"
    events = results / "latest" / point / "events.jsonl"
    arguments = ("-e", f"scenario={scenario}", "-e", f"results_dir={results}", *extra)
    said = folder / "said"
    with said.open("w") as file, start_playbook("playbooks/run.yml", *arguments, said=file) as playbook:
        try:
            wait_until(lambda: events.exists() and state in events.read_text(), playbook)
            then(playbook)
        finally:
            if playbook.poll() is None:
                os.killpg(playbook.pid, signal.SIGKILL)
            print(said.read_text()[-4000:])  # for who wants to know why a test failed
    return (results / "latest").resolve(), said.read_text(), playbook.returncode
