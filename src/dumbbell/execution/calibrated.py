"""Which calibration proves the path of a point: a new one, or one that an earlier point of the run made.

A calibration holds as long as what it measured has not changed: the path asked for, the queues that the
router made for it, and what of every host lies under its packets (kernel, interfaces, CPU, boot). That is its
fingerprint. Settings of TCP are not in it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dumbbell.rundir import read_json, write_json

EVERY_POINTS = 20  # a calibration proves no more points than these without another one
KNOWN = "calibrations.json"  # in the run's directory
REUSED = "calibration.json"  # in the point's directory

State = Mapping[str, Any]


def fingerprint(plan: Mapping[str, Any], states: Mapping[str, State]) -> str:
    """Digest of what a calibration measures: SHA-256 as hex."""
    calibration = next(phase for phase in plan["phases"] if phase["phase"] == "calibration")
    about = {
        "path": plan["path"],
        "calibration": calibration,
        "hosts": {host: _under_packets(state) for host, state in sorted(states.items())},
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _under_packets(state: State) -> dict[str, Any]:
    kept = {key: state.get(key) for key in ("boot_id", "kernel", "nic", "cpu", "path")}
    sysctls = (state.get("sysctl") or {}).items()
    return kept | {"sysctl": {name: value for name, value in sysctls if not name.startswith("net.ipv4.tcp_")}}


def reusable(run_dir: Path, digest: str, every: int = EVERY_POINTS) -> dict[str, Any] | None:
    """The calibration that proves a path, as :func:`remember` wrote it; None if one is to be made."""
    known: Sequence[dict[str, Any]] = read_json(run_dir / KNOWN) or []
    found = next((each for each in reversed(known) if each["fingerprint"] == digest), None)
    return found if found and found["proves"] < every else None


def remember(run_dir: Path, digest: str, execution: str, point_dir: Path) -> None:
    """Write down that the calibration of an execution was as asked, for the points after it."""
    known = read_json(run_dir / KNOWN) or []
    where = os.path.relpath(point_dir, run_dir)
    known.append({"fingerprint": digest, "execution": execution, "dir": where, "proves": 1})
    write_json(run_dir / KNOWN, known)


def reuse(run_dir: Path, calibration: Mapping[str, Any], point_dir: Path) -> None:
    """Give a point what an earlier calibration left, and say in its directory which one that is."""
    source = run_dir / calibration["dir"]
    for folder in sorted(source.glob("raw/*/calibration")):
        target = point_dir / folder.relative_to(source)
        target.mkdir(parents=True, exist_ok=True)
        for file in folder.iterdir():
            if file.is_file():
                (target / file.name).unlink(missing_ok=True)
                os.link(file, target / file.name)
    write_json(
        point_dir / REUSED,
        {"execution": calibration["execution"], "fingerprint": calibration["fingerprint"]},
    )
    known = read_json(run_dir / KNOWN) or []
    for each in known:
        if each["execution"] == calibration["execution"]:
            each["proves"] += 1
    write_json(run_dir / KNOWN, known)


def holds(verdict: Mapping[str, Any]) -> bool:
    """Whether a point's calibration was as asked: all that was checked of the idle path."""
    checks = [
        check["ok"]
        for check in verdict.get("checks", ())
        if check["name"].startswith(("idle RTT", "rate"))
        or (check["name"] == "agent" and check["subject"].endswith(" calibration"))
    ]
    return bool(checks) and all(checks)
