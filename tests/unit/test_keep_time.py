"""The lab's hosts are woken when their time stands still."""

from __future__ import annotations

import os
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


def test_hosts_that_spin_on_one_core_are_woken() -> None:
    on_one = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n"
    with kept(on_one + WOKEN + SPINS) as one, kept(on_one + WOKEN + SPINS) as other:
        assert one.wait(timeout=60) == other.wait(timeout=60) == 7


def test_a_host_that_cannot_take_the_signal_yet_is_let_alone() -> None:
    still = "import time; print(flush=True)\nt = time.process_time()\n"
    with kept(still + "while time.process_time() - t < 2: pass") as host:
        assert host.wait(timeout=60) == 0


def test_a_host_whose_time_goes_on_is_let_alone() -> None:
    with kept(WOKEN + "for _ in range(200): time.sleep(0.01)") as host:
        assert host.wait(timeout=60) == 0
