"""Commands of the documentation that run anywhere, page by page, as a reader types them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from documented import REPOSITORY, follow, pages_with, script

from dumbbell.report import vector

TIMEOUT_S = 600  # of a page; on a busy machine a browser may hang, and is ended after two minutes
RUNS, SWEEPS = ("A", "B", "C", "D", "RUN", "latest"), ("SWEEP",)  # results that pages speak of


@pytest.fixture
def checkout(collected: Path, swept: Path, tmp_path: Path) -> Path:
    """A checkout to write into, with results."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for entry in REPOSITORY.iterdir():
        if entry.name not in {"inventory", "mine", "results"}:
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(REPOSITORY / "inventory", folder / "inventory")
    for names, run in ((RUNS, collected), (SWEEPS, swept)):
        for name in names:
            shutil.copytree(run, folder / "results" / name)
    return folder


@pytest.mark.parametrize("page", pages_with("anywhere"))
def test_commands_that_run_anywhere(page: str, checkout: Path, tmp_path: Path) -> None:
    if vector.browser() is None and "figure" in script(page, "anywhere"):
        pytest.skip("Chromium is not installed")
    (home := tmp_path / "home").mkdir()
    environment = {"HOME": str(home), "PYTHONPATH": str(checkout / "src")}
    code, said = follow(page, "anywhere", folder=checkout, timeout_s=TIMEOUT_S, environment=environment)
    assert code == 0, said[-3000:]
