"""Files of the fixtures, read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from dumbbell.read.directory import make, told
from dumbbell.read.model import Malformed, Told
from read.mutate import FILES


@contextmanager
def read(path: Path | str, tmp_path: Path) -> Iterator[Told]:
    """What a fixture, or a file, tells."""
    yield told(FILES / path, tmp_path)


def refused(content: bytes, tmp_path: Path) -> str:
    """The message with which a file is refused, without its path."""
    (path := tmp_path / "file").write_bytes(content)
    with pytest.raises(Malformed) as error:
        told(path, tmp_path)
    return str(error.value).removeprefix(f"{path}, ")


def made(tmp_path: Path, *names: str | Path) -> tuple[Path, pl.DataFrame]:
    """The directory that is made of fixtures, and its table of flows."""
    run_dir = make([FILES / name for name in names], tmp_path / "results")
    return run_dir, pl.read_parquet(run_dir / "flows.parquet")
