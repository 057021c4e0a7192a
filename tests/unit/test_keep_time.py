"""The lab's hosts are woken when their time stands still."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEEP_TIME = Path(__file__).parents[2] / "roles/lab/files/keep_time.sh"
# What a host does, in the process that it is: takes the timer's signal, and spins or sleeps.
WOKEN = "import signal, sys, time; signal.signal(signal.SIGALRM, lambda *_: sys.exit(7)); print(flush=True)\n"
SPINS = "while True: pass"


@contextmanager
def kept(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process, and the guard of its time; both have ended when the block has."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as host:
        assert host.stdout
        host.stdout.readline()
        with subprocess.Popen(["bash", KEEP_TIME, str(host.pid)]) as guard:
            try:
                yield host
            finally:
                host.kill()
                host.wait()
                assert guard.wait(timeout=10) == 0


def test_a_host_that_spins_is_woken() -> None:
    with kept(WOKEN + SPINS) as host:
        assert host.wait(timeout=60) == 7


def test_a_host_that_cannot_take_the_signal_yet_is_let_alone() -> None:
    still = "import time; print(flush=True)\nt = time.process_time()\n"
    with kept(still + "while time.process_time() - t < 2: pass") as host:
        assert host.wait(timeout=60) == 0


def test_a_host_that_sleeps_is_let_alone() -> None:
    with kept(WOKEN + "time.sleep(2)") as host:
        assert host.wait(timeout=60) == 0
