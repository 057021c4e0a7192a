"""The page of a run: what it knows at each moment, and what its server gives away."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from synthetic import inventory

from dumbbell.live import flows, page
from dumbbell.live.known import NoRunError, look
from dumbbell.live.server import Samples, application
from dumbbell.plan import Plan, plan
from dumbbell.run.directory import Execution, RunDir
from dumbbell.run.record import record_state, write_json

S = 10**9
SWEEP = """\
name: x
title: Cubic & reno
duration: 20s
repetitions: 2
path:
  forward: {rate: 20mbit, delay: 10ms, queue: {kind: pfifo, limit: 1bdp}}
flows:
  tcp: {kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]", congestion_control: [cubic, reno]}
"""
ONE = SWEEP.replace("[cubic, reno]", "cubic").replace("repetitions: 2", "repetitions: 1")


def planned(folder: Path, text: str) -> tuple[Plan, Path]:
    (scenario := folder / "x.yml").write_text(text)
    return plan(scenario, inventory()), scenario


@pytest.fixture
def sweep(tmp_path: Path) -> RunDir:
    return RunDir.create(*planned(tmp_path, SWEEP), tmp_path / "results")


@pytest.fixture
def one(tmp_path: Path) -> RunDir:
    return RunDir.create(*planned(tmp_path, ONE), tmp_path / "results")


def verdict(folder: Path, state: str, *reasons: str, at_ns: int | None = None) -> None:
    write_json(folder / "verdict.json", {"state": state, "reasons": reasons, "checks": []})
    if at_ns:
        os.utime(folder / "verdict.json", ns=(at_ns, at_ns))


def began(execution: Execution, *states: tuple[str, str]) -> int:
    """Record states of a point; returns the time of the last."""
    for state, reason in (("preparing", ""), *states):
        record_state(execution.dir, state, reason)  # type: ignore[arg-type]
    last = json.loads((execution.dir / "events.jsonl").read_text().splitlines()[-1])
    return int(last["unix_ns"])


def durations(run: RunDir) -> tuple[float, float]:
    """Seconds of calibration and measurement of a point."""
    of = run.executions[0].point
    return of.phase("calibration").duration_ns / S, of.phase("measurement").duration_ns / S


def text(of: Any) -> str:
    """What a reader sees of components."""
    if isinstance(of, list | tuple):
        return " ".join(map(text, of))
    return text(getattr(of, "children", None) or "") if hasattr(of, "to_plotly_json") else str(of)


def test_a_run_that_is_planned(sweep: RunDir) -> None:
    known = look(sweep.dir, time.time_ns())
    assert (known.state, known.progress) == ("planned", "no point has begun")
    assert known.counts == {"planned": 4}
    assert known.shown.number == 1
    assert known.left.seconds == pytest.approx(4 * sum(durations(sweep)))
    found = Samples("inventory/nowhere", print).of(known)
    assert found.missing == ["This point has not begun, so there are no samples of it."]
    assert "tcp 0 to 20 s cubic" in text(page.tables(known, found)) or "reno" in text(
        page.tables(known, found)
    )


def test_a_run_that_calibrates(one: RunDir) -> None:
    calibration, measurement = durations(one)
    at_ns = began(one.executions[0], ("armed", "calibration"))
    known = look(one.dir, at_ns + 2 * S)
    assert (known.state, known.progress) == ("armed", "armed calibration for 2 s")
    assert known.phase.phase == "calibration"
    assert known.left.seconds == pytest.approx(calibration + measurement - 2)
    assert page.strip(known) == []


def test_a_run_that_measures(sweep: RunDir) -> None:
    calibration, measurement = durations(sweep)
    at_ns = began(sweep.executions[0], ("armed", "measurement"), ("running", "measurement"))
    known = look(sweep.dir, at_ns + 5 * S)
    assert (known.state, known.progress) == ("running", f"running measurement, 5 of {measurement:.0f} s")
    assert known.phase.phase == "measurement"
    assert known.counts == {"planned": 3, "running": 1}
    assert known.left.seconds == pytest.approx(3 * (calibration + measurement) + measurement - 5)


def test_a_run_some_of_whose_points_have_ended(sweep: RunDir) -> None:
    now_ns = began(sweep.executions[3]) + S
    for number, state in enumerate(("passed", "failed", "invalid")):
        verdict(sweep.executions[number].dir, state, "why", at_ns=now_ns - (30 - 10 * number) * S)
    known = look(sweep.dir, now_ns)
    assert known.counts == {"running": 1, "passed": 1, "failed": 1, "invalid": 1}
    assert known.shown.number == 4
    assert [point.number for point in known.ended] == [3, 2, 1]
    assert known.left.seconds == pytest.approx(0)  # the last point takes 10 s like those before
    assert look(sweep.dir, now_ns - 4 * S).left.seconds == pytest.approx(4)
    cells = page.strip(known)[1].children
    assert [cell.className for cell in cells] == [
        "cell passed",
        "cell failed",
        "cell invalid",
        "cell running",
    ]
    assert cells[1].href == f"/runs/{sweep.id}/points/002/report.html"
    assert cells[1].title.endswith(": failed\nwhy")


def test_between_two_points(sweep: RunDir) -> None:
    now_ns = time.time_ns()
    verdict(sweep.executions[0].dir, "passed", at_ns=now_ns - 90 * S)
    known = look(sweep.dir, now_ns)
    assert (known.state, known.progress) == (
        *("planned", "point 2 of 4 has not begun; the last one ended 90 s ago"),
    )


def test_all_points_have_ended_and_the_run_has_no_verdict_yet(sweep: RunDir) -> None:
    for execution in sweep.executions:
        verdict(execution.dir, "passed")
    known = look(sweep.dir, time.time_ns())
    assert (known.state, known.left.how) == ("collecting", "")


def test_a_run_that_has_ended(one: RunDir) -> None:
    began(one.executions[0], ("running", "measurement"))
    pl.DataFrame(
        {"phase": ["measurement"], "name": ["tcp"], "goodput_bps": [9e6], "retransmitted_segments": [7]}
    ).write_parquet(one.dir / "flows.parquet")
    verdict(one.dir, "failed", "too slow")
    known = look(one.dir, time.time_ns())
    assert (known.state, known.reasons, known.progress) == ("failed", ("too slow",), "")
    (flow,) = flows.results(known.shown.execution) or []
    assert (flow.goodput_bps, flow.retransmissions, flow.rtt_ns) == (9e6, 7, None)
    shown = text(page.head(known, flows.unknown(known.shown.execution, known.phase, ""), 0))
    assert "✗ FAILED" in shown
    assert "too slow" in shown


def test_a_point_that_was_left_is_not_under_way_once_the_run_has_a_verdict(sweep: RunDir) -> None:
    began(sweep.executions[1], ("running", "measurement"))
    verdict(sweep.executions[0].dir, "passed")
    assert look(sweep.dir, time.time_ns()).state == "running"
    verdict(sweep.dir, "aborted", "the controller was lost", at_ns=time.time_ns() + S)
    known = look(sweep.dir, time.time_ns())
    assert (known.state, known.shown.number) == ("aborted", 1)
    assert known.counts == {"passed": 1, "aborted": 3}
    # Resumed: the point is tried again.
    again = sweep.executions[1].again()
    began(again)
    os.utime(again.dir / "events.jsonl", ns=(time.time_ns() + 2 * S,) * 2)
    known = look(sweep.dir, time.time_ns())
    assert (known.state, known.shown.execution.id) == ("preparing", f"{sweep.id}_002_attempt2")


def test_in_virtual_time_it_says_what_is_not_known(sweep: RunDir) -> None:
    for folder in (sweep.dir, *(execution.dir for execution in sweep.executions)):
        of = json.loads((folder / "plan.json").read_text())
        write_json(folder / "plan.json", of | {"virtual": True})
    began(sweep.executions[0], ("running", "measurement"))
    known = look(sweep.dir, time.time_ns())
    assert known.progress == "running measurement"
    assert known.left.seconds is None
    assert known.left.how == "In virtual time it is not known before 3 points have ended."
    found = Samples("inventory/nowhere", print).of(known)
    assert found.missing[0].startswith("In virtual time no samples are sent to InfluxDB")


def test_an_inventory_without_influxdb_is_asked_once(one: RunDir) -> None:
    began(one.executions[0], ("running", "measurement"))
    said: list[str] = []
    samples, known = Samples("inventory/nowhere", said.append), look(one.dir, time.time_ns())
    deadline = time.monotonic() + 60
    while (found := samples.of(known)).missing == ["InfluxDB is being asked."]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "inventory/nowhere: there is no such inventory" in found.missing[0]
    for _ in range(3):
        samples.of(known)
    assert said == found.missing


def test_a_newer_run_is_followed_and_the_older_listed(one: RunDir, tmp_path: Path) -> None:
    latest = one.dir.parent / "latest"
    assert look(latest, 0).run.id == one.id
    verdict(one.dir, "invalid", "no clock")
    newer = RunDir.create(*planned(tmp_path, ONE), tmp_path / "results")
    known = look(latest, 0)
    assert known.run.id == newer.id
    assert [(each.listed.dir.name, each.state, each.why) for each in known.before] == [
        (one.id, "invalid", "no clock")
    ]


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoRunError, match=r"is no run directory: .*No such file"):
        look(tmp_path, 0)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(NoRunError, match="is no run directory"):
        look(tmp_path, 0)


def test_a_thousand_points_fit(sweep: RunDir) -> None:
    verdict(sweep.executions[0].dir, "passed")
    verdict(sweep.executions[1].dir, "failed", "why")
    four = look(sweep.dir, time.time_ns())
    known = replace(four, points=[*four.points] * 250)
    _, cells, legend = page.strip(known)
    assert (cells.className, len(cells.children)) == ("strip many", 1000)
    assert text(legend).split() == ["500", "planned", "250", "passed", "250", "failed"]
    shown = text(page.tables(known, Samples("", print).of(known)))
    assert shown.count("repetition") == page.MOST_ENDED
    assert "480 more are cells above" in shown


def test_files_are_read_again_only_if_they_have_changed(
    sweep: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict(sweep.executions[0].dir, "passed")
    known = look(sweep.dir, 0)
    monkeypatch.setattr(Path, "read_bytes", None)
    monkeypatch.setattr(Path, "read_text", None)
    assert look(sweep.dir, 0) == known
    monkeypatch.undo()
    verdict(sweep.executions[0].dir, "failed", "judged again")
    assert look(sweep.dir, 0).counts == {"planned": 3, "failed": 1}


OUTPUTS = [
    *("head.children", "strip.children", "strip-shown.data"),
    *("figure.figure", "figure-place.hidden", "tables.children"),
]


def refreshed(client: Any, shown: str | None = None) -> dict[str, Any]:
    """The answer to a browser's request for the page's content."""
    outputs = [dict(zip(("id", "property"), name.split("."), strict=True)) for name in OUTPUTS]
    asked = {
        "output": f"..{'...'.join(OUTPUTS)}..",
        "outputs": outputs,
        "inputs": [{"id": "tick", "property": "n_intervals", "value": 1}],
        "state": [{"id": "strip-shown", "property": "data", "value": shown}],
        "changedPropIds": ["tick.n_intervals"],
    }
    answer = client.post("/_dash-update-component", json=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json["response"]
    return found


def test_the_server_gives_the_page_and_reports_alone(sweep: RunDir) -> None:
    began(sweep.executions[0])
    (sweep.dir / "report.html").write_text("the report")
    client = application(
        sweep.dir.parent / "latest", Samples("inventory/nowhere", print)
    ).server.test_client()
    front = client.get("/").text
    assert 'src="http' not in front
    assert 'href="http' not in front
    assert client.get(f"/runs/{sweep.id}/report.html").text == "the report"
    for name in (f"{sweep.id}/plan.json", f"{sweep.id}/points/001/report.html", "../x.yml", "../report.html"):
        assert client.get(f"/runs/{name}").status_code == 404
    found = refreshed(client)
    assert "Cubic & reno" in json.dumps(found["head"])
    strip = found["strip-shown"]["data"]
    assert "strip" not in refreshed(client, strip)  # unchanged, so it is not sent again
    verdict(sweep.executions[0].dir, "passed")
    assert "cell passed" in json.dumps(refreshed(client, strip)["strip"])


def test_a_run_that_vanishes_is_said_on_the_page(one: RunDir) -> None:
    client = application(one.dir, Samples("inventory/nowhere", print)).server.test_client()
    one.dir.rename(one.dir.with_name("elsewhere"))
    assert "is no run directory" in json.dumps(refreshed(client)["head"])
