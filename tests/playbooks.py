"""Playbooks started as users start them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def ansible_playbook(*arguments: str | Path, timeout_s: float = 120) -> tuple[int, str]:
    """Exit code, and everything that was said."""
    done = subprocess.run(
        [BIN / "ansible-playbook", *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout


def unfolded(said: str) -> str:
    """Runs of white space as one space: lines may have been folded."""
    return " ".join(said.split())
