"""The catalogue of a run: ``points.parquet`` has a row for each point, whose files then need not be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from dumbbell.run.content import dig
from dumbbell.run.record import read_json

FILE = "points.parquet"
LEVEL = "level_"  # columns of what varies begin with it, because a quantity may have the name of a column
OF_POINT = {
    "place": pl.Int64,
    "run": pl.String,
    "repetition": pl.Int64,
    "verdict": pl.String,
    "baseline": pl.String,
}
_DIRECTORY = "directory"  # name of a point's directory


class _Row(NamedTuple):
    run: str
    repetition: int | None
    verdict: str
    baseline: str | None
    levels: dict[str, str]


def write(run_dir: Path, folders: Sequence[Path]) -> None:
    """Write the catalogue of a run, whose points are in ``folders``, when all of them have been judged."""
    names = pl.Series(_DIRECTORY, [folder.name for folder in folders], pl.String)
    _table([_read(folder) for folder in folders]).with_columns(names).write_parquet(run_dir / FILE)


def index(folders: Sequence[Path]) -> pl.DataFrame:
    """A row for each point: ``[place, run, repetition, verdict, baseline, level_NAME ...]``.

    From the catalogues of their runs. Points that were judged since are read, and those without a catalogue.
    """
    known = {run_dir: _known(run_dir) for run_dir in {folder.parent.parent for folder in folders}}
    return _table([known[folder.parent.parent].get(folder.name) or _read(folder) for folder in folders])


def _known(run_dir: Path) -> dict[str, _Row]:
    """Rows of a catalogue by the names of directories, without those whose verdict is younger."""
    path = run_dir / FILE
    try:
        table = pl.read_parquet(path)
        written_ns = path.stat().st_mtime_ns
    except (OSError, pl.exceptions.PolarsError):
        return {}
    levels = [column for column in table.columns if column.startswith(LEVEL)]
    return {
        row[_DIRECTORY]: _Row(
            row["run"],
            row["repetition"],
            row["verdict"],
            row["baseline"],
            {name.removeprefix(LEVEL): row[name] for name in levels if row[name] is not None},
        )
        for row in table.iter_rows(named=True)
        if _is_before(run_dir / "points" / row[_DIRECTORY] / "verdict.json", written_ns)
    }


def _is_before(file: Path, ns: int) -> bool:
    try:
        return file.stat().st_mtime_ns <= ns
    except OSError:
        return False


def _read(folder: Path) -> _Row:
    """Of a point without results from its plan."""
    manifest = read_json(folder / "manifest.json") or {}
    point = manifest or (dig(read_json(folder / "plan.json"), "points") or [{}])[0]
    return _Row(
        manifest.get("run", folder.name),
        point.get("repetition"),
        dig(read_json(folder / "verdict.json"), "state") or "unknown",
        point.get("baseline"),
        point.get("levels") or {},
    )


def _table(rows: Iterable[_Row]) -> pl.DataFrame:
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row.levels)
    columns: dict[str, Any] = OF_POINT | {LEVEL + name: pl.String() for name in names}
    found = [(place, *row[:-1], *(row.levels.get(name) for name in names)) for place, row in enumerate(rows)]
    return pl.DataFrame(found, columns, orient="row")
