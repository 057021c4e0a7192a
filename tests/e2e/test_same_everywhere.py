"""A plan gives the same samples by a checkout at another path, and on a busy machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dumbbell.run.record import read_json
from playbooks import REPOSITORY, ansible_playbook

pytestmark = pytest.mark.virtual

SCENARIO = Path(__file__).with_name("ten_seconds.yml")
TIMEOUT_S = 2400  # the first time a kernel is built
LOOPS = 4


def digests(checkout: Path, results: Path) -> dict[str, str]:
    """Of each table of samples of a run of the scenario by a checkout."""
    code, said = ansible_playbook(
        *("-i", "inventory/vtime", "playbooks/virtual.yml"),
        *("-e", f"scenario={SCENARIO}", "-e", f"results_dir={results}"),
        timeout_s=TIMEOUT_S,
        checkout=checkout,
    )
    assert code == 0, said[-3000:]
    found: dict[str, str] = read_json(results / "latest" / "manifest.json")["digests"]
    return found


def other_checkout(place: Path) -> Path:
    """A copy with this one's kernels and builds."""
    kept = shutil.ignore_patterns(".*", "results", "__pycache__")
    shutil.copytree(REPOSITORY, place, symlinks=True, ignore=kept)
    for name in (".build", ".lab"):
        (place / name).symlink_to(REPOSITORY / name)
    return place


@contextmanager
def busy() -> Iterator[None]:
    """More programs that compute than the machine has cores."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_neither_path_nor_load_changes_a_sample(tmp_path: Path) -> None:
    there = other_checkout(tmp_path / "a checkout at a path that is much longer" / "dumbbell")
    here = digests(REPOSITORY, tmp_path / "here")
    with busy():
        elsewhere = digests(there, tmp_path / "elsewhere")
    assert "tcp_info" in here
    assert elsewhere == here
