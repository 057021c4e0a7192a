from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from synthetic import write_run


@pytest.fixture(scope="session")
def _synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("results") / "run"
    write_run(run_dir)
    return run_dir


@pytest.fixture
def run_dir(_synthetic: Path, tmp_path: Path) -> Path:
    """A synthetic run directory, as it comes home; a test may damage it."""
    return Path(shutil.copytree(_synthetic, tmp_path / "run"))
