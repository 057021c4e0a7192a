"""``fab follow``: show what changes in a run."""

from __future__ import annotations

import time
from pathlib import Path

from dumbbell.cli.status import opened

FOLLOW_S = 5


def follow(run: Path) -> None:
    """Print each new line of a run's state until every point has a verdict."""
    said = set()
    while True:
        found = opened(run)
        for line in found.describe(time.time_ns()).splitlines():
            if line not in said:
                print(line, flush=True)
                said.add(line)
        if all(execution.judged for execution in found.executions):
            return
        time.sleep(FOLLOW_S)
