"""Files of a run directory: JSON, and the states that the controller records."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

Event = dict[str, Any]

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


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if it is missing or broken."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, indented for people to read."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_jsonl(path: Path) -> list[Event]:
    """The objects of a file of JSON lines. Other lines are skipped; a missing file has no objects."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    objects = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            objects.append(value)
    return objects


def record_state(run_dir: Path, state: State, reason: str = "") -> None:
    """Append a state to the run's events, with the time of this machine's clock."""
    if state not in get_args(State):
        raise ValueError(f"{state!r} is no state of a run; there are {', '.join(get_args(State))}")
    event = {"unix_ns": time.time_ns(), "event": "state", "state": state, "reason": reason}
    with (run_dir / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")


def was_armed(run_dir: Path) -> bool:
    """Whether the agents of a run, or of a point, were armed for the measurement."""
    return any((event["state"], event["reason"]) == ("armed", "measurement") for event in states(run_dir))


def abort(run_dir: Path, reasons: Sequence[str]) -> None:
    """Write the verdict `aborted` of a run that was not completed."""
    record_state(run_dir, "aborted", "; ".join(reasons))
    write_json(run_dir / "verdict.json", {"state": "aborted", "reasons": list(reasons), "checks": []})


def states(run_dir: Path) -> list[Event]:
    """The states that were recorded for a run or a point, in order."""
    return [event for event in read_jsonl(run_dir / "events.jsonl") if event.get("event") == "state"]
