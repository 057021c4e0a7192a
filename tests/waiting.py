"""Waiting for what a playbook does meanwhile."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

TIMEOUT_S = 900


def wait_until(condition: Callable[[], bool], playbook: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert playbook.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
