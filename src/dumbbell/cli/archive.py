"""``fab archive``: pack the large raw files of old runs, or put them back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dumbbell.cli import tell
from dumbbell.run.directory import point_folders, time_of
from dumbbell.run.raw import Sizes, pack_raw, unpack_raw
from dumbbell.words import columns


def archive(runs: Sequence[Path], results: Path, days: int, *, unpack: bool) -> None:
    """Pack these runs, or without any those below ``results`` that began so many days ago; print sizes.

    SystemExit if there is nothing to do, or if files cannot be packed or read.
    """
    if unpack and not runs:
        raise SystemExit("name the runs whose raw files you need: fab archive --run results/RUN --unpack")
    wanted = list(runs or _old(results, datetime.now(UTC) - timedelta(days=days)))
    if missing := [str(run) for run in wanted if not run.is_dir()]:
        raise SystemExit(f"there is no directory {', '.join(missing)}")
    try:
        if unpack:
            number = sum(unpack_raw(point) for run in wanted for point in _points(run))
            tell(f"{number} points have their raw files again")
            return
        packed = [(run, sizes) for run in wanted if (sizes := _pack(run))]
    except OSError as error:
        raise SystemExit(str(error)) from None
    if not packed:
        raise SystemExit(f"nothing to pack: no run has raw files and began {days} days ago or earlier")
    total = Sizes(*map(sum, zip(*(sizes for _, sizes in packed), strict=True)))
    rows = [(run.name, _mb(of.files), _mb(of.archive)) for run, of in packed]
    tell("\n".join(columns([("run", "raw files", "packed"), *rows, ("all", *map(_mb, total))])))


def _old(results: Path, before: datetime) -> Iterator[Path]:
    """Directories of runs that began before a time, by their names."""
    for path in sorted(results.glob("[0-9]*")):
        try:
            began = time_of(path.name.partition("_")[0])
        except ValueError:
            continue
        if path.is_dir() and began < before:
            yield path


def _points(run: Path) -> list[Path]:
    return point_folders(run) or [run]


def _pack(run: Path) -> Sizes | None:
    found = [sizes for point in _points(run) if (sizes := pack_raw(point))]
    return Sizes(*map(sum, zip(*found, strict=True))) if found else None


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
