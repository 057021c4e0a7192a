"""Raw files of old runs: packed, still known, and put back as they were."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

import dumbbell
from dumbbell.cli.archive import archive
from dumbbell.execution.collect import collect
from dumbbell.results import Run
from dumbbell.run.directory import STAMP
from dumbbell.run.raw import ARCHIVE, pack_raw, unpack_raw


@pytest.fixture
def point(collected: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(collected, tmp_path / "results/20260101T000000Z_old"))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_packed_files_come_back_as_they_were(point: Path) -> None:
    before = contents(point)
    sizes = pack_raw(point)
    assert sizes is not None
    assert not [*point.glob("raw/*/*/spool*")]
    assert sizes.files == sum(len(data) for name, data in before.items() if "/spool" in name)
    assert sizes.archive == (point / ARCHIVE).stat().st_size < sizes.files
    assert unpack_raw(point)
    assert contents(point) == before
    assert not unpack_raw(point)


def test_tables_and_verdict_are_read_as_before_and_collecting_says_what_to_do(point: Path) -> None:
    before = dumbbell.open(point)
    goodput, events = before.goodput(), before.events()
    pack_raw(point)
    run = dumbbell.open(point)
    assert run.goodput().equals(goodput)
    assert run.events().equals(events)
    assert isinstance(run, Run)
    assert run.verdict["state"] == "passed"
    with pytest.raises(ValueError, match=f"fab archive --run {point} --unpack"):
        collect(point, None)


def test_a_point_without_a_verdict_is_left_alone(point: Path) -> None:
    (point / "verdict.json").unlink()
    before = contents(point)
    assert pack_raw(point) is None
    assert contents(point) == before


def test_an_interrupted_call_is_completed_by_the_next(point: Path) -> None:
    spool = next(point.glob("raw/*/measurement/spool*"))
    kept = spool.read_bytes()
    sizes = pack_raw(point)
    spool.write_bytes(kept)
    assert pack_raw(point) == sizes
    assert not spool.exists()


def test_only_old_runs_are_packed_and_sizes_are_told(point: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = Path(shutil.copytree(point, point.with_name(f"{datetime.now(UTC):{STAMP}}_new")))
    archive([], point.parent, 30, unpack=False)
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["run", point.name, "all"]
    assert (point / ARCHIVE).exists()
    assert not (new / ARCHIVE).exists()
    archive([point], point.parent, 30, unpack=True)
    assert capsys.readouterr().out == "1 points have their raw files again\n"
    with pytest.raises(SystemExit, match="there is no directory"):
        archive([point / "x"], point.parent, 30, unpack=False)
