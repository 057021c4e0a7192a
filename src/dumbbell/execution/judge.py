"""Complete a point's run directory: tables, manifest and verdict."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumbbell.execution import calibrated
from dumbbell.run.record import abort, read_json, record_state, was_armed, write_json

if TYPE_CHECKING:  # importing plans takes longer than a step
    from dumbbell.run.directory import RunDir

_REASONS = "reasons.json"  # errors so far, if the point is judged later


def judge(
    run_dir: Path, influxdb: Mapping[str, Any] | None, reasons: Sequence[str], *, judged: bool
) -> dict[str, Any]:
    """Collect and judge a point. Without ``judged``, only store the reasons; the point is judged later.

    ``influxdb`` has the fields of :class:`dumbbell.ingest.influx.InfluxTarget`, or is None.
    Returns ``verdict``, which is `aborted` if the measurement never began, and ``stored``, whether InfluxDB
    has every row.
    """
    # Ansible's main process loads this module, and has to stay small during a run.
    from dumbbell.execution.collect import collect  # noqa: PLC0415
    from dumbbell.ingest.influx import InfluxTarget  # noqa: PLC0415

    reasons = [*(read_json(run_dir / _REASONS) or []), *reasons]
    if not judged:
        write_json(run_dir / _REASONS, reasons)
        return {"verdict": {"state": "measured", "reasons": reasons}, "stored": False}
    if reasons and not was_armed(run_dir):
        abort(run_dir, reasons)
        return {"verdict": read_json(run_dir / "verdict.json"), "stored": False}
    record_state(run_dir, "collecting")
    verdict = collect(run_dir, InfluxTarget(**influxdb) if influxdb else None, reasons)
    record_state(run_dir, verdict.state, "; ".join(verdict.reasons))
    rows = read_json(run_dir / "manifest.json")["rows"]["influxdb"]
    stored = rows is not None and all(of["stored"] == of["spooled"] for of in rows.values())
    return {"verdict": read_json(run_dir / "verdict.json"), "stored": stored}


def begin_pages(run_dir: Path) -> None:
    """Begin to write the pages of a run's points in another process, while the hosts are released.

    Who makes the run's summary waits for it, and writes what it did not.
    """
    subprocess.Popen(
        [sys.executable, "-m", "dumbbell.report.notebooks", str(run_dir)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def judge_calibrations(run: RunDir) -> None:
    """Make points invalid if they reused a calibration and the next one of the same path failed."""
    from dumbbell.facts.check import Check  # noqa: PLC0415
    from dumbbell.validity.verdict import Verdict  # noqa: PLC0415

    for execution, reason in calibrated.disproved(run):
        before = read_json(execution.dir / "verdict.json")
        check = Check(name="calibration", kind="validity", subject="path", requested="holds",
                      measured="does not hold", ok=False, reason=reason)  # fmt: skip
        if not execution.finished or check.model_dump() in before["checks"]:
            continue
        verdict = Verdict.of([*Verdict.model_validate(before).checks, check])
        record_state(execution.dir, verdict.state, reason)
        write_json(execution.dir / "verdict.json", verdict.model_dump())
