"""What a commit's runs are found by, and where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_world import scenario

from dumbbell.bisection.measure import InVirtualTime, Sought
from dumbbell.run.directory import RunDir
from playbooks import REPOSITORY

COMMIT = "76ea9ef744e0a1"
INVENTORY = REPOSITORY / "inventory/vtime"


def measure_in(folder: Path, file: Path) -> InVirtualTime:
    sought = Sought(scenario=file, profile=None, point=None, metric="goodput", of=None)
    return InVirtualTime(folder, "/tree", sought, INVENTORY, [2, 4, 8])


def test_seeds_of_a_later_look_are_others(tmp_path: Path) -> None:
    batches = measure_in(tmp_path, scenario(tmp_path)).batches
    assert [seeds for seeds, _ in batches] == [2, 4, 8]
    assert len({wanted.digest for _, wanted in batches}) == 3
    assert [len(wanted.points) for _, wanted in batches] == [2, 2, 4]


def test_reports_are_named_from_the_bisection_s_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = scenario(tmp_path)
    measure = measure_in(Path("results/bisect"), file)
    assert measure.reports(COMMIT) == []
    _, wanted = measure.batches[0]
    run = RunDir.create(wanted, file, Path("results/bisect/runs") / COMMIT[:12])
    (run.dir / "report.html").touch()
    assert measure.reports(COMMIT) == [f"runs/{COMMIT[:12]}/{run.dir.name}/report.html"]
