"""The package alone, on a machine that has no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from synthetic import REPOSITORY

RENDER = """
import sys
from pathlib import Path
import dumbbell
from dumbbell.report.notebooks import NOTEBOOKS, render
from dumbbell.report.pages.index import render_index
run = Path(sys.argv[1])
print(dumbbell.__file__, NOTEBOOKS, sep="\\n")
print(render(run), render(run, NOTEBOOKS / "fairness.py"), render_index(run.parent), sep="\\n")
"""


def test_a_run_directory_is_reported_on_without_the_repository(collected: Path, tmp_path: Path) -> None:
    uv = shutil.which("uv")
    assert uv, "make setup installs uv"
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    subprocess.run([uv, "build", "--quiet", "--offline", "--out-dir", tmp_path, REPOSITORY], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--target", installed, wheel], check=True
    )
    run_dir = shutil.copytree(collected, elsewhere / "20260101T000000Z_two_flow_fairness")
    done = subprocess.run(
        [sys.executable, "-P", "-c", RENDER, str(run_dir)],
        cwd=elsewhere,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    package, notebooks, *pages = map(Path, done.stdout.split())
    assert package.is_relative_to(installed)
    assert notebooks.is_relative_to(installed)
    for page in pages[:2]:
        assert "plotly-graph-div" in page.read_text()
    assert "runs <b>1</b>" in pages[2].read_text()
