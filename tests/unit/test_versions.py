"""What a newer Dumbbell has written is refused by name, wherever users open it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import dumbbell
from dumbbell import experiment
from dumbbell.bisection import bisection
from dumbbell.cli.compare import compare
from dumbbell.cli.figure import figure
from dumbbell.cli.status import show
from dumbbell.cli.table import table
from dumbbell.execution.collect import collect
from dumbbell.live.known import NoRunError, look
from dumbbell.plan.document import SCHEMA_VERSION
from dumbbell.versions import NewerError

NEWER = (
    rf"plan\.json has version {SCHEMA_VERSION + 1}, and this Dumbbell reads up to {SCHEMA_VERSION}: update"
)


def made_newer(run_dir: Path) -> Path:
    """The run with the plans of a newer Dumbbell: their version, and keys that are not known here."""
    for path in run_dir.rglob("plan.json"):
        if "raw" not in path.parts:
            newer = json.loads(path.read_bytes()) | {"schema_version": SCHEMA_VERSION + 1, "what": "is new"}
            path.write_text(json.dumps(newer, indent=2))
    return run_dir


@pytest.fixture(params=["collected", "swept"])
def newer(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run of one point, and one of several."""
    return made_newer(shutil.copytree(request.getfixturevalue(request.param), tmp_path / "run"))


@pytest.mark.parametrize(
    "command",
    [
        show,
        lambda run: table(str(run), "goodput", csv=True, out=""),
        lambda run: figure(str(run), "list", ["svg"], 1, run, []),
        lambda run: compare([str(run), f"other={run}"]),
    ],
)
def test_commands_refuse_a_newer_run(command: Callable[[Path], None], newer: Path) -> None:
    with pytest.raises(SystemExit, match=NEWER):
        command(newer)


def test_newer_runs_are_not_opened_shown_or_judged(newer: Path) -> None:
    with pytest.raises(NewerError, match=NEWER):
        dumbbell.open(newer)
    with pytest.raises(NoRunError, match=NEWER):
        look(newer, 0)
    with pytest.raises(NewerError, match=NEWER):
        collect(newer, None)


def test_a_newer_search_for_a_commit_does_not_go_on(tmp_path: Path) -> None:
    (tmp_path / "bisection.json").write_text('{"schema_version": 2, "steps": [{"what": "is new"}]}')
    with pytest.raises(NewerError, match=r"bisection\.json has version 2, and this Dumbbell reads up to 1"):
        bisection.read(tmp_path)


def test_a_newer_ab_does_not_go_on(tmp_path: Path) -> None:
    (tmp_path / "ab.json").write_text('{"schema_version": 2}')
    asked = experiment.Asked(Path("scenarios/one_flow.yml"), ["one", "two"], Path("inventory/lab"))
    with pytest.raises(NewerError, match=r"ab\.json has version 2, and this Dumbbell reads up to 1"):
        experiment.begun(tmp_path, asked)
