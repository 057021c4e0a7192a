"""Run directories: made, found again, resumed and summed up."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
from synthetic import REPOSITORY, inventory

from dumbbell.metrics.values import conditions
from dumbbell.plan import Plan, plan
from dumbbell.report.pages.summary import render_summary
from dumbbell.run.content import RunSet
from dumbbell.run.directory import Execution, RunDir, listed, point_folders
from dumbbell.run.record import abort, record_state, write_json
from dumbbell.studies.listed import Listed
from dumbbell.validity.points import summarise

SWEEP = """\
name: x
title: Cubic & reno
duration: 20s
repetitions: 2
flows:
  tcp: {kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]", congestion_control: [cubic, reno]}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (path := tmp_path / "x.yml").write_text(SWEEP)
    return path


@pytest.fixture
def run(scenario: Path, tmp_path: Path) -> RunDir:
    return RunDir.create(plan(scenario, inventory()), scenario, tmp_path / "results")


def verdict(execution: Execution, state: str, goodput_bps: float | None = None) -> None:
    """The result of a point, as collect leaves it."""
    (execution.dir / "verdict.json").write_text(
        json.dumps({"state": state, "reasons": ["why"], "checks": []})
    )
    flow = {"run": execution.id, "phase": "measurement", "name": "tcp", "goodput_bps": goodput_bps}
    pl.DataFrame([flow]).write_parquet(execution.dir / "flows.parquet")


def armed(execution: Execution, phase: str) -> None:
    record_state(execution.dir, "preparing")
    record_state(execution.dir, "armed", phase)


def test_opening_a_run_reads_no_plan_of_its_points(run: RunDir) -> None:
    """A run may have ten thousand."""
    for file in (run.dir / "plan.json", *run.dir.glob("points/*/plan.json")):
        file.write_text("broken")
    found = RunDir.open(run.dir)
    assert [e.name for e in found.executions] == [e.name for e in run.executions]
    with pytest.raises(ValueError, match="Plan"):
        _ = found.executions[0].point


def test_a_run_of_a_version_without_a_list_of_points_is_opened_by_its_plan(run: RunDir) -> None:
    (run.dir / "points.json").unlink()
    assert RunDir.open(run.dir) == run


def test_directories_of_a_thousand_points_stand_in_their_order(run: RunDir) -> None:
    whole = Plan.model_validate_json((run.dir / "plan.json").read_bytes())
    many = whole.model_copy(update={"points": [whole.points[0]] * 1000})
    directories = [of["directory"] for of in listed(many)]
    assert directories == sorted(directories)
    assert (directories[0], directories[-1]) == ("points/0001", "points/1000")
    few = whole.model_copy(update={"points": [whole.points[0]] * 999})
    assert listed(few)[-1]["directory"] == "points/999"


def test_a_run_is_found_again_as_it_was_made(run: RunDir) -> None:
    assert (run.dir.parent / "latest").resolve() == run.dir
    found = RunDir.open(run.dir.parent / "latest")
    assert found == run
    assert found.sweeps
    assert [e.id for e in found.executions] == [f"{run.id}_{n:03d}" for n in (1, 2, 3, 4)]
    assert len({e.point.id for e in found.executions}) == 2
    for execution in found.executions:
        assert Plan.model_validate_json((execution.dir / "plan.json").read_bytes()) == execution.plan
        told = json.loads((execution.dir / "raw/sender1/measurement/plan.json").read_text())
        assert (told["run_id"], told["holder"], told["host"]) == (execution.id, run.id, "sender1")
        assert not execution.begun


def test_a_run_of_one_point_has_one_directory(scenario: Path, tmp_path: Path) -> None:
    scenario.write_text(SWEEP.replace("[cubic, reno]", "cubic").replace("repetitions: 2", "repetitions: 1"))
    run = RunDir.create(plan(scenario, inventory()), scenario, tmp_path / "results")
    (only,) = run.executions
    assert not run.sweeps
    assert (only.id, only.dir, only.holder) == (run.id, run.dir, run.id)
    armed(only, "calibration")
    again = RunDir.open(run.dir).executions[0].again()
    assert (again.id, again.holder) == (f"{run.id}_attempt2", run.id)
    assert RunDir.open(run.dir).executions == [again]
    assert (run.dir / "scenario.yml").exists()
    # As a world of virtual time sees it, which is given this directory alone.
    shutil.rmtree(run.dir.with_name(f"{run.id}_attempt1"))
    assert RunDir.open(run.dir).executions[0].id == again.id


def test_a_run_can_be_repeated_from_its_own_files(scenario: Path, tmp_path: Path) -> None:
    path = (
        "path: {forward: {rate_trace: {file: $trace}, delay: 1ms, queue: {kind: pfifo, limit: 9packets}}}\n"
    )
    profile = "profiles: {other: {matrix: {trace: [other.csv]}}}\n"
    scenario.write_text(f"{SWEEP}matrix: {{trace: [traces/lte.csv]}}\n{path}{profile}")
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces/lte.csv").write_text("0,8000000\n2,4000000\n")
    (tmp_path / "other.csv").write_text("0,9000000\n")
    run = RunDir.create(plan(scenario, inventory()), scenario, tmp_path / "results")
    again = run.executions[0].again()
    for folder in (run.dir, again.dir):
        for chosen in (None, "other"):
            kept = plan(folder / "scenario.yml", inventory(), chosen)
            assert kept == plan(scenario, inventory(), chosen)


def test_what_has_a_result_is_finished_and_what_was_aborted_is_not(run: RunDir) -> None:
    for execution, state in zip(run.executions, ("passed", "failed", "invalid"), strict=False):
        verdict(execution, state)
    abort(run.executions[3].dir, ["no host"])
    assert [e.finished for e in RunDir.open(run.dir).executions] == [True, True, True, False]


def test_a_point_is_named_by_what_varies(run: RunDir, scenario: Path, tmp_path: Path) -> None:
    label = run.executions[0].point.label
    assert run.executions[0].name == f"point 1 of 4: {label}, repetition 1"
    scenario.write_text(SWEEP.replace("[cubic, reno]", "cubic"))
    first, second = RunDir.create(plan(scenario, inventory()), scenario, tmp_path / "results").executions
    assert (first.name, second.name) == ("point 1 of 2: repetition 1", "point 2 of 2: repetition 2")


def test_only_a_measurement_goes_on_alone(run: RunDir) -> None:
    first, second, third, _ = run.executions
    armed(first, "calibration")
    armed(second, "measurement")
    armed(third, "measurement")
    verdict(third, "passed")
    (third.dir / "events.jsonl").open("a").write('{"event": "sta')  # the controller died as it wrote
    assert [e.measuring for e in RunDir.open(run.dir).executions] == [False, True, False, False]


def test_every_attempt_has_an_id_of_its_own_and_nothing_is_lost(run: RunDir) -> None:
    execution = run.executions[1]
    for attempt in (2, 3):
        armed(execution, "calibration")
        (execution.dir / "raw/sender1/left").write_text(str(attempt))
        execution = execution.again()
        assert execution.id == f"{run.id}_002_attempt{attempt}"
        assert RunDir.open(run.dir).executions[1] == execution
        assert not (execution.dir / "raw/sender1/left").exists()
    kept = sorted(path.name for path in (run.dir / "points").iterdir())
    assert kept == ["001", "002", "002_attempt1", "002_attempt2", "003", "004"]
    assert (run.dir / "points/002_attempt1/raw/sender1/left").read_text() == "2"


def test_points_are_in_their_order_without_earlier_attempts(tmp_path: Path) -> None:
    for name in ("001_attempt1", "001", "002", "003_attempt1", "999", "1000", "notes"):
        (tmp_path / "points" / name).mkdir(parents=True)
        (tmp_path / "points" / name / "verdict.json").write_text("{}")
        write_json(tmp_path / "points" / name / "manifest.json", {"scenario": name})
    (tmp_path / "points" / "003").mkdir()  # being run
    names = ["001", "002", "003", "999", "1000"]
    assert [path.name for path in point_folders(tmp_path)] == names
    assert [path.name for path in RunSet.open(tmp_path).dirs] == [name for name in names if name != "003"]
    assert [path.name for path, _ in Listed(tmp_path)._points] == names
    (tmp_path / "points" / "001" / "manifest.json").unlink()
    assert conditions(tmp_path) == {"scenario": "002"}
    assert point_folders(tmp_path / "points") == []
    assert RunSet.open(tmp_path / "points" / "001").dirs == [tmp_path / "points" / "001"]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (("passed", "passed", "passed", "passed"), "passed"),
        (("passed", "failed", "passed", "passed"), "failed"),
        (("invalid", "failed", "passed", "passed"), "invalid"),
        (("passed", "passed", "passed", None), "aborted"),
    ],
)
def test_a_run_is_as_good_as_its_worst_point(
    run: RunDir, states: tuple[str | None, ...], expected: str
) -> None:
    for execution, state in zip(run.executions, states, strict=True):
        if state:
            verdict(execution, state, 1e6)
    found = summarise(run)
    assert found["state"] == expected
    assert len(found["reasons"]) == sum(state != "passed" for state in states)
    assert json.loads((run.dir / "verdict.json").read_text()) == found


def observe(execution: Execution, rp_filter: str) -> None:
    """What an agent saw of the sender."""
    reading = {"unix_ns": 1, "boot_id": "b", "settings": {"net.ipv4.conf.all.rp_filter": rp_filter}}
    told = {name: reading | {"unread": {}} for name in ("before", "after")}
    file = execution.dir / "raw/sender1/measurement/observed.json"
    file.write_text(json.dumps(told))


def test_settings_that_nothing_explains_are_told_first(run: RunDir) -> None:
    for execution, value in zip(run.executions, "0010", strict=True):
        verdict(execution, "passed")
        observe(execution, value)
    verdict(run.executions[3], "failed")
    found = summarise(run)
    told = "sender1 net.ipv4.conf.all.rp_filter: 0 in point 1, point 2, point 4; 1 in point 3"
    assert found["reasons"][0] == f"unexplained: {told}"
    assert len(found["reasons"]) == 2
    values = {"0": ["point 1", "point 2", "point 4"], "1": ["point 3"]}
    assert found["unexplained"] == [
        {"host": "sender1", "setting": "net.ipv4.conf.all.rp_filter", "values": values}
    ]
    page = render_summary(run.dir).read_text()
    assert "few_repetitions: 2 repetitions of each point" in page
    assert page.index("nothing explains it") < page.index("Goodput by point")
    assert "<td>1</td><td>point 3</td>" in page


def test_the_page_compares_valid_repetitions_and_leads_to_every_point(run: RunDir) -> None:
    goodputs = {"cubic": iter((90e6, 94e6)), "reno": iter((50e6, 60e6))}
    for execution in run.executions:
        control = execution.point.levels["congestion_control"]
        goodput = next(goodputs[control])
        verdict(execution, "invalid" if goodput == 60e6 else "passed", goodput)
    summarise(run)
    page = render_summary(run.dir).read_text()
    table = page.partition("Goodput by point")[2].partition("Points in the order")[0]
    assert "92 Mbit/s" in table  # the median of cubic's
    assert "90 Mbit/s to 94 Mbit/s" in table
    assert "60 Mbit/s" not in table  # of a run that is no result
    assert page.count("/report.html") == 4
    assert "Cubic &amp; reno" in page


def test_how_a_run_is_getting_on(run: RunDir) -> None:
    first, second, third, _ = run.executions
    verdict(first, "failed")
    armed(second, "measurement")
    record_state(second.dir, "running", "measurement")
    record_state(third.dir, "preparing")
    now = json.loads((second.dir / "events.jsonl").read_text().splitlines()[-1])["unix_ns"] + 4_000_000_000
    title, *lines = run.describe(now).splitlines()
    assert title == f"{run.id}: Cubic & reno"
    said = [line.rpartition(": ")[2] for line in lines]
    assert said == ["failed; why", "running measurement, 4 of 20 s", "preparing for 4 s", "planned"]
    assert "measurement should have ended 60 s ago" in run.describe(now + 76_000_000_000)


def test_runs_that_begin_in_the_same_moment_have_directories_of_their_own(tmp_path: Path) -> None:
    scenario = REPOSITORY / "scenarios" / "two_flow_fairness.yml"
    wanted, results = plan(scenario, inventory()), tmp_path / "results"
    with ThreadPoolExecutor(3) as at_once:
        runs = list(at_once.map(lambda _: RunDir.create(wanted, scenario, results), range(3)))
    assert len({run.dir for run in runs}) == 3
    assert (results / "latest").resolve() in [run.dir for run in runs]
    assert {path.name for path in results.iterdir()} == {"latest", *(run.dir.name for run in runs)}
