from __future__ import annotations

from pathlib import Path

import pytest
from stand_in import Playbook
from synthetic import write_run

from dumbbell.execution.collect import collect
from dumbbell.plan import Inventory, plan
from nightly.nights import FAIRNESS, INVENTORY, Nights


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


@pytest.fixture
def playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Playbook:
    return Playbook.install(tmp_path / "bin", monkeypatch)


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables and verdict of a point of FAIRNESS in the lab."""
    run_dir = tmp_path_factory.mktemp("measured") / "run"
    write_run(run_dir, FAIRNESS)
    collect(run_dir, None)
    (run_dir / "plan.json").write_bytes(plan(FAIRNESS, Inventory.read(INVENTORY)).to_json())
    return run_dir
