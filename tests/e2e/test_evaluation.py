"""An evaluation in virtual time of a module that is broken on purpose, against a control of the kernel."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from playbooks import BIN, REPOSITORY

pytestmark = pytest.mark.virtual

MODULE = "tests/modules/tcp_ignores_ecn"
TIMEOUT_S = 2400  # the first time a kernel is built


@dataclass(frozen=True)
class Evaluated:
    code: int
    said: str
    folder: Path

    @property
    def criteria(self) -> dict[str, dict[str, Any]]:
        """By their names."""
        summary = json.loads((self.folder / "summary.json").read_text())
        (of,) = summary["candidates"].values()
        return {criterion["name"]: criterion for criterion in of["criteria"]}


def evaluate(results: Path) -> Evaluated:
    command: list[str | Path] = [BIN / "fab", "evaluate", MODULE, "--results", results, "--name", "tiny"]
    command += ["--criteria", "tests/e2e/evaluation/criteria"]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return Evaluated(done.returncode, done.stdout + done.stderr, results / "tiny")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    return evaluate(tmp_path_factory.mktemp("evaluation"))


def test_it_fails_the_criterion_that_names_its_fault_and_no_other(evaluated: Evaluated) -> None:
    states = {name: of["state"] for name, of in evaluated.criteria.items()}
    assert states == {"used": "pass", "drops-answered": "pass", "marks-answered": "fail"}, evaluated.said
    assert evaluated.code == 1


def test_its_runs_had_the_module(evaluated: Evaluated) -> None:
    for point in evaluated.criteria["used"]["points"]:
        run_dir = (evaluated.folder / point["report"]).parent
        state = json.loads((run_dir / "raw" / "sender1" / "state.json").read_text())
        assert state["modules"]["loaded"]["tcp_ignores_ecn"]["build_id"]


def test_the_second_time_nothing_is_run(evaluated: Evaluated) -> None:
    results = evaluated.folder.parent
    before = sorted(results.glob("evaluation_runs/*/*"))
    again = evaluate(results)
    assert "ignores_ecn: its results are there\nreno: its results are there" in again.said
    assert (again.code, again.criteria) == (1, evaluated.criteria)
    assert sorted(results.glob("evaluation_runs/*/*")) == before
