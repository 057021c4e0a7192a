"""Playbooks started as users start them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

REPOSITORY = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def put_first(monkeypatch: pytest.MonkeyPatch, program: Path, script: str) -> None:
    """Make a program that playbooks find before the one of its name that the machine has."""
    program.parent.mkdir()
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


def ansible_playbook(
    *arguments: str | Path, timeout_s: float = 120, checkout: Path = REPOSITORY
) -> tuple[int, str]:
    """Exit code, and everything that was said."""
    with start_playbook(*arguments, checkout=checkout) as playbook:
        try:
            said, _ = playbook.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as late:
            os.killpg(playbook.pid, signal.SIGKILL)
            last = (late.output or b"").decode()[-2000:]
            pytest.fail(f"{arguments} did not end within {timeout_s} s: {last}", pytrace=False)
        except KeyboardInterrupt:  # nobody reads any more, for which Ansible would wait
            os.killpg(playbook.pid, signal.SIGKILL)
            raise
    return playbook.returncode, said


def start_playbook(
    *arguments: str | Path, said: int | IO[str] = subprocess.PIPE, checkout: Path = REPOSITORY
) -> subprocess.Popen[str]:
    """A playbook of a checkout, that leads a process group of its own."""
    return subprocess.Popen(
        [BIN / "ansible-playbook", *arguments],
        cwd=checkout,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1", "PYTHONPATH": str(checkout / "src")},
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def switched_off(inventory: Path) -> Path:
    """A copy of the lab's inventory, with addresses and a port where nobody answers."""
    shutil.copytree(REPOSITORY / "inventory/lab", inventory)
    hosts = inventory / "hosts.yml"
    there, nowhere = "ansible_host: 198.18.0.", "ansible_port: 1\n          ansible_host: 127.0.0."
    hosts.write_text(hosts.read_text().replace(there, nowhere))
    return inventory


def unfolded(said: str) -> str:
    """Runs of white space as one space: lines may have been folded."""
    return " ".join(said.split())
