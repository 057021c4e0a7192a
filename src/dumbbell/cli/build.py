"""``dumbbell build``: the programs of hosts, of a checkout's sources or of those in a wheel."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import version

from dumbbell.places import HOME, IS_WHEEL, REPOSITORY


def build(programs: Sequence[str]) -> int:
    """Build programs, or all, in ``.build/bin``. The status of make; SystemExit without make or Go."""
    for tool in ("make", "go"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed: programs of hosts are built by make and Go (go.mod)")
    targets = [f".build/bin/{program}" for program in programs] or ["build"]
    # The sources of a wheel have no commit.
    known = [f"GO_VERSION={version('dumbbell')}"] if IS_WHEEL else []
    command = ["make", "--no-print-directory", "--file", str(REPOSITORY / "Makefile"), *targets, *known]
    return subprocess.run(command, cwd=HOME, check=False).returncode
