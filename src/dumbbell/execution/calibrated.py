"""Which calibration a point uses: a new one, or that of an earlier point of the run.

A calibration stays valid while the things that it measured do not change: the requested path, the router's
queues, and the parts of every host that handle packets (kernel, interfaces, CPU, boot). A digest of these is
its fingerprint. Settings of TCP are not part of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumbbell.run.record import read_json, write_json

if TYPE_CHECKING:  # importing plans takes longer than a step
    from dumbbell.run.directory import Execution, RunDir

KNOWN = "calibrations.json"  # in the run's directory
REUSED = "calibration.json"  # in the point's directory
# Names of the checks of the idle path.
OF_PATH = ("idle RTT", "idle RTT, duplicates", "idle RTT, waits", "rate", "rate, arriving")

State = Mapping[str, Any]


def fingerprint(plan: Mapping[str, Any], states: Mapping[str, State]) -> str:
    """Digest of everything that a calibration measures: SHA-256 as hex."""
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


def reusable(run_dir: Path, digest: str, every: int) -> dict[str, Any] | None:
    """The known calibration with a fingerprint, as :func:`remember` wrote it; None if a new one is needed.

    At most ``every`` points share a calibration.
    """
    for known in reversed(_known(run_dir)):
        if known["fingerprint"] == digest:
            proves_more = len(known["proves"]) < every and holds(_verdict(run_dir / known["dir"]))
            return known if proves_more else None
    return None


def remember(run_dir: Path, digest: str, execution: str, point_dir: Path) -> None:
    """Record the calibration of an execution for later points."""
    where = os.path.relpath(point_dir, run_dir)
    made = {"fingerprint": digest, "execution": execution, "dir": where, "proves": [execution]}
    write_json(run_dir / KNOWN, [*_known(run_dir), made])


def reuse(run_dir: Path, calibration: Mapping[str, Any], execution: str, point_dir: Path) -> None:
    """Link the files of an earlier calibration into an execution's directory, and record which one it is."""
    source = run_dir / calibration["dir"]
    for folder in sorted(source.glob("raw/*/calibration")):
        target = point_dir / folder.relative_to(source)
        target.mkdir(parents=True, exist_ok=True)
        for file in folder.iterdir():
            if file.is_file() and file.name != "plan.json":  # the execution has its own, with its own id
                (target / file.name).unlink(missing_ok=True)
                os.link(file, target / file.name)
    write_json(
        point_dir / REUSED,
        {"execution": calibration["execution"], "fingerprint": calibration["fingerprint"]},
    )
    known = _known(run_dir)
    for each in known:
        if each["execution"] == calibration["execution"]:
            each["proves"].append(execution)
    write_json(run_dir / KNOWN, known)


def holds(verdict: Mapping[str, Any]) -> bool | None:
    """Whether all checks of the idle path are ok in a point's verdict.

    None if the point did not get that far.
    """
    checks = _checks(verdict)
    return all(check["ok"] for check in checks) if checks else None


def disproved(run: RunDir) -> Iterator[tuple[Execution, str]]:
    """Points that reused a calibration although the next one of the same path failed, with the reasons."""
    executions = {execution.id: execution for execution in run.executions}
    held: dict[str, dict[str, Any]] = {}  # the last good calibration of each path, by fingerprint
    for made in _known(run.dir):
        path, verdict = made["fingerprint"], _verdict(run.dir / made["dir"])
        if holds(verdict):
            held[path] = made
        elif before := held.pop(path, None):
            first, then = (executions[each["execution"]].short_name for each in (before, made))
            why = "; ".join(f"{c['subject']}: {c['reason']}" for c in _checks(verdict) if not c["ok"])
            reason = f"its calibration is that of {first}, and the next of its path, that of {then},"
            for proved in before["proves"]:
                if proved != before["execution"] and proved in executions:
                    yield executions[proved], f"{reason} does not hold: {why}"


def _known(run_dir: Path) -> list[dict[str, Any]]:
    known: list[dict[str, Any]] = read_json(run_dir / KNOWN) or []
    return known


def _verdict(point_dir: Path) -> dict[str, Any]:
    verdict: dict[str, Any] = read_json(point_dir / "verdict.json") or {}
    return verdict


def _checks(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The checks of the idle path, and of the agents that measured it."""

    def concerns(check: Mapping[str, Any]) -> bool:
        of_agent: bool = check["name"] == "agent" and check["subject"].endswith(" calibration")
        return of_agent or check["name"] in OF_PATH

    return [check for check in verdict.get("checks", ()) if concerns(check)]
