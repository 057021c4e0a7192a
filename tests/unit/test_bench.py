from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from synthetic import REPOSITORY

from dumbbell.execution.collect import collect
from dumbbell.run.record import read_jsonl
from tools import bench
from tools.bench import Row

S = 1_000_000_000


def state(at_s: float, name: str, reason: str = "") -> dict[str, Any]:
    return {"unix_ns": round(at_s * S), "event": "state", "state": name, "reason": reason}


EVENTS = [
    state(0, "planned"),
    state(2, "preparing"),
    state(42, "armed", "calibration"),
    {"unix_ns": 43 * S, "event": "armed", "host": "sender1", "phase": "calibration"},
    state(49.5, "running", "calibration"),
    state(65, "armed", "measurement"),
    state(72, "running", "measurement"),
    state(105, "collecting"),
    state(108, "passed", "all went well"),
]
DURATIONS = {
    "planned": 2, "preparing": 40, "armed calibration": 7.5, "running calibration": 15.5,
    "armed measurement": 7, "running measurement": 33, "collecting": 3,
}  # fmt: skip


def test_a_state_lasts_until_the_next() -> None:
    assert bench.state_durations_s(EVENTS) == DURATIONS
    assert list(bench.state_durations_s(reversed(EVENTS))) == list(DURATIONS)


def test_a_state_entered_twice_has_the_sum() -> None:
    events = [state(0, "running", "x"), state(1, "armed", "x"), state(3, "running", "x"), state(7, "passed")]
    assert bench.state_durations_s(events) == {"running x": 5, "armed x": 2}


@pytest.mark.parametrize("events", [[], EVENTS[:1]])
def test_without_a_change_of_state_there_is_no_duration(events: list[dict[str, Any]]) -> None:
    assert bench.state_durations_s(events) == {}


def test_the_events_of_a_collected_run_will_do(run_dir: Path) -> None:
    collect(run_dir, None)
    durations = bench.state_durations_s(read_jsonl(run_dir / "events.jsonl"))
    assert durations == dict.fromkeys(("planned", "preparing", "calibrating", "armed", "running"), 8)


def test_the_total_is_that_of_the_parts_and_has_the_target_if_warm() -> None:
    parts = {"boot": 20.0, "provision": 30.0, "run": 110.0}
    warm, cold = (bench.demo_rows(parts, {"preparing": 40.0}, warm=warm) for warm in (True, False))
    assert [row.name for row in warm] == [
        "warm demo: boot", "warm demo: provision", "warm demo: run", "warm demo: run: preparing",
        "warm demo: total",
    ]  # fmt: skip
    assert warm[-1] == Row("warm demo: total", 160, "s", target="<= 90")
    assert cold[-1] == Row("cold demo: total", 160, "s", target=None)
    assert [row.target for row in (*warm[:-1], *cold)] == [None] * 9


def test_json_has_every_key_of_every_row() -> None:
    rows = [Row("a", 1.23456, "s"), Row("b", 2, "s", n=3, spread=0.5, target="<= 90")]
    assert json.loads(bench.to_json(rows)) == [
        {"name": "a", "value": 1.23, "unit": "s", "n": 1, "spread": None, "target": None},
        {"name": "b", "value": 2, "unit": "s", "n": 3, "spread": 0.5, "target": "<= 90"},
    ]


def test_the_table_is_aligned_and_names_targets() -> None:
    lines = bench.to_table([Row("boot", 1, "s"), Row("the total", 123.456, "s", target="<= 90")]).splitlines()
    assert lines == ["boot            1.0 s", "the total     123.5 s  (target <= 90)"]


def test_elsewhere_than_in_a_checkout_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench.main(["demo"]) == 2
    assert "no playbooks/run.yml here" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_fails_leaves_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks/run.yml").touch()
    (tmp_path / "Makefile").write_text("lab:\n\t@false\n")
    monkeypatch.chdir(tmp_path)
    assert bench.main(["demo"]) == 1
    assert "make lab failed with status 2" in capsys.readouterr().err
    assert not (tmp_path / "bench").exists()


@pytest.mark.parametrize("name", sorted(path.stem for path in (REPOSITORY / "bench").glob("*.py")))
def test_a_benchmark_finds_what_it_needs(name: str) -> None:
    """As make runs them: with modules of the repository and of the tests."""
    importlib.import_module(f"bench.{name}")
    assert f"python bench/{name}.py" not in (REPOSITORY / "Makefile").read_text()


def test_the_time_of_a_flow_is_real_time(tmp_path: Path) -> None:
    other = {"event": "flow_first_data", "phase": "calibration", "mono_ns": 5 * S}
    events = [EVENTS[0], other, other | {"phase": "measurement", "mono_ns": 15 * S}]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (tmp_path / "world").mkdir()
    rows = ["real_s,virtual_s,cpu_s", "10,0,9", "20,12,19", "25,12,24", "26,22,25", "28,42,27", "30,50,29"]
    (tmp_path / "world" / "time.csv").write_text("\n".join(rows))
    assert bench.flow_s(tmp_path) == pytest.approx((28 + 2 * 3 / 8) - (25 + 3 / 10))


def test_the_output_of_a_run_is_divided_by_the_first_task_of_a_point() -> None:
    first = YAML(typ="safe").load(REPOSITORY / "roles" / "run" / "tasks" / "point.yml")[0]["name"]
    point = f"TASK [dumbbell.testbed.run : {first}] ****\nok: [sender1]\nok: [router]\n"
    parts = bench.point_logs(f"TASK [before]\nok: [sender1]\n{point}{point}")
    assert [bench.task_slots(part, "sender1") for part in parts] == [1, 1]
