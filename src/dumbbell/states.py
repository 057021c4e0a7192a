"""The states of a run, and the record of its transitions (``events.jsonl``)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Literal, get_args

State = Literal[
    "planned",
    "preparing",
    "armed",
    "running",
    "collecting",
    "passed",
    "failed",
    "invalid",
    "inconclusive",
    "aborted",
]


def record_state(run_dir: Path, state: State, reason: str = "") -> None:
    """Append a transition to the run's events, with the time of this machine's clock."""
    if state not in get_args(State):
        raise ValueError(f"{state!r} is no state of a run; there are {', '.join(get_args(State))}")
    event = {"unix_ns": time.time_ns(), "event": "state", "state": state, "reason": reason}
    with (run_dir / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")
