"""``fab status``: show how a run is getting on, as far as its controller has written it down."""

from __future__ import annotations

import time
from pathlib import Path

from dumbbell.run.directory import RunDir


def opened(run: Path) -> RunDir:
    """The run of a directory; SystemExit if there is none."""
    try:
        return RunDir.open(run)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{run} is no run directory: {error}") from None


def show(run: Path) -> None:
    """Print the state of a run."""
    print(opened(run).describe(time.time_ns()))
