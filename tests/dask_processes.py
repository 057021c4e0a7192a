"""A Dask cluster as users start one: a scheduler and workers, each a process of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

DASK = Path(sys.executable).with_name("dask")
BEGINS_S = 300  # of a busy machine


class Processes:
    """Processes by their names; what each says is in ``folder/NAME.log``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._start(
            "scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0"
        )
        self.address = self._said("scheduler", "Scheduler at:").split()[-1]

    def worker(self, name: str, *, within: Sequence[str] = (), directory: Path | None = None) -> None:
        """Begin a worker of one world; ``within`` is a command that runs it, in namespaces for example."""
        place = directory or self.folder / name
        place.mkdir(exist_ok=True)
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1", "--name", name)
        self._start(name, "worker", self.address, *options, "--local-directory", place, within=within)

    def wait(self) -> None:
        """Wait until all workers have found the scheduler."""
        for name in self.running.keys() - {"scheduler"}:
            self._said(name, "Registered to:")

    def kill(self, name: str) -> None:
        """SIGKILL, as a machine that loses its power."""
        self.running[name].kill()
        self.running[name].wait()

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def end(self) -> None:
        for process in reversed(self.running.values()):
            process.kill()
            process.wait()

    def _start(self, name: str, *command: str | Path, within: Sequence[str] = ()) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *within, DASK, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )

    def _said(self, name: str, words: str) -> str:
        until = time.monotonic() + BEGINS_S
        while time.monotonic() < until and self.running[name].poll() is None:
            for line in self.said(name).splitlines():
                if words in line:
                    return line
            time.sleep(0.1)
        pytest.fail(f"{name} did not begin: {self.said(name)[-2000:]}", pytrace=False)


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """A scheduler, to which workers are added."""
    found = Processes(folder)
    try:
        yield found
    finally:
        found.end()
