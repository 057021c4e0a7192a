"""The catalogue of a run of several points: what it says is what the points' files say."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest

import dumbbell
from dumbbell.results import RunSet
from dumbbell.run import catalogue
from dumbbell.run.content import IN_MEASUREMENT
from dumbbell.run.directory import point_folders


@pytest.fixture
def run(swept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(swept, tmp_path / "results" / swept.name))


def test_it_says_what_the_files_of_points_say(run: Path) -> None:
    folders = point_folders(run)
    by_catalogue = catalogue.index(folders)
    (run / catalogue.FILE).unlink()
    assert catalogue.index(folders).equals(by_catalogue)
    assert by_catalogue.height == len(folders)
    assert set(by_catalogue["verdict"]) == {"passed"}


def test_files_of_points_are_not_read_for_it(run: Path) -> None:
    expected = catalogue.index(point_folders(run))
    for manifest in run.glob("points/*/manifest.json"):
        manifest.unlink()
    assert catalogue.index(point_folders(run)).equals(expected)
    # Some of the points, in another order.
    last, first = point_folders(run)[-1], point_folders(run)[0]
    assert catalogue.index([last, first])["run"].to_list() == [expected["run"][-1], expected["run"][0]]


def test_a_point_that_was_judged_since_is_read_again(run: Path) -> None:
    verdict = run / "points/002/verdict.json"
    verdict.write_text(json.dumps({"state": "invalid", "reasons": [], "checks": []}))
    later_ns = (run / catalogue.FILE).stat().st_mtime_ns + 10**9
    os.utime(verdict, ns=(later_ns, later_ns))
    states = catalogue.index(point_folders(run))["verdict"].to_list()
    assert states == ["passed", "invalid", *["passed"] * (len(states) - 2)]


def test_all_points_are_scanned_as_each_is_read(run: Path) -> None:
    """Also if a table of one has other columns."""
    folders = point_folders(run)
    odd = folders[1] / "tcp_info.parquet"
    pl.read_parquet(odd).with_columns(of_its_own=pl.lit(7)).write_parquet(odd)
    opened = dumbbell.open(run)
    assert isinstance(opened, RunSet)
    found = opened.samples("snd_cwnd", "of_its_own").collect()
    for place, folder in enumerate(folders):
        own = pl.read_parquet(folder / "tcp_info.parquet").filter(IN_MEASUREMENT)
        rows = found.filter(place=place)
        assert rows["snd_cwnd"].to_list() == own["snd_cwnd"].to_list()
        assert rows["t_ns"].to_list() == own["t_ns"].to_list()
        assert rows["of_its_own"].null_count() == (0 if place == 1 else rows.height)
    assert found["place"].is_sorted()
    assert set(found.columns) > {"level_beside", "level_queue", "verdict"}
