"""Programs that a test starts in namespaces of their own, and that say JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playbooks import REPOSITORY


def said_by(command: Sequence[str | Path], *, timeout_s: float, given: str = "") -> Any:
    """The last line of a program that must succeed in the repository, decoded; ``given`` is its input."""
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        input=given,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
