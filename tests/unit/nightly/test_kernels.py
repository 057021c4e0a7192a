"""Nights of run directories: a slower kernel is found, and is open until the former one is back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from synthetic import REPOSITORY, write_run

from dumbbell.execution.collect import collect
from dumbbell.nightly import page
from dumbbell.nightly.history import History
from dumbbell.nightly.judge import Finding, NotMeasured, judge
from nightly.nights import LEAST, night

ONE_FLOW = REPOSITORY / "scenarios" / "one_flow.yml"
OLD, NEW = "6.12.0-synthetic", "6.12.9-synthetic"
COUNTERS = ("bytes_received", "bytes_acked")
DEFAULT = '"net.ipv4.tcp_sack": "1"'


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run on each kernel; the newer one has another sysctl."""
    folder = tmp_path_factory.mktemp("kernels")
    for kernel in (OLD, NEW):
        write_run(folder / kernel, ONE_FLOW)
        for path in folder.glob(f"{kernel}/raw/*/**/*.json"):
            if path.name in ("state.json", "observed.json"):
                text = path.read_text().replace(OLD, kernel)
                if kernel == NEW and path.name == "observed.json":
                    text = text.replace(DEFAULT, f'{DEFAULT}, "net.ipv4.tcp_newer": "1"')
                path.write_text(text)
        verdict = collect(folder / kernel, None)
        assert verdict.state == "passed", verdict.reasons
    return {kernel: folder / kernel for kernel in (OLD, NEW)}


class Home:
    """Nights of copies of those runs, with noise."""

    def __init__(self, folder: Path, runs: dict[str, Path]) -> None:
        self.folder, self.runs, self.count = folder, runs, 0
        self.history = History(folder / "history.sqlite")
        self.rng = np.random.default_rng(1)

    def passes(
        self, kernel: str, share: float, commit: str = "aaaaaaa", card: str = "on"
    ) -> list[tuple[str, bool]]:
        """A night in which flows get a share of what they had; returns what is said of the goodput."""
        self.count += 1
        run_dir = self.folder / f"{night(self.count)}_one_flow"
        shutil.copytree(self.runs[kernel], run_dir)
        scale = share * (1 + 0.003 * self.rng.standard_normal())
        table = pl.read_parquet(run_dir / "tcp_info.parquet")
        scaled = [(pl.col(name) * scale).round().cast(pl.Int64) for name in COUNTERS]
        table.with_columns(scaled).write_parquet(run_dir / "tcp_info.parquet")
        manifest = json.loads((run_dir / "manifest.json").read_text())
        manifest["versions"]["checkout"] = commit
        (run_dir / "manifest.json").write_text(json.dumps(manifest))
        observed = run_dir / "raw/router/measurement/observed.json"
        feature = '"vec1 feature tx-checksumming": "{}"'
        text = observed.read_text()
        assert feature.format("on") in text
        observed.write_text(text.replace(feature.format("on"), feature.format(card)))
        assert self.history.record(night(self.count), run_dir) == []
        return self.said()

    def said(self) -> list[tuple[str, bool]]:
        """State of each finding of the goodput in the last night, and whether it is an alarm."""
        return [(finding.state, finding.alarm) for finding in self.found()]

    def found(self) -> list[Finding]:
        """What the last night finds of the goodput."""
        found = list(judge(self.history, night(self.count), LEAST, [], gone))
        assert {finding.series.key.metric for finding in found} <= {"goodput", "utilisation"}
        return [finding for finding in found if finding.series.key.metric == "goodput"]


def gone(*_: object) -> Sequence[tuple[float, float]]:
    raise NotMeasured("the kernel is gone")


@pytest.fixture
def home(tmp_path: Path, runs: dict[str, Path]) -> Iterator[Home]:
    home = Home(tmp_path, runs)
    with closing(home.history):
        yield home


def test_a_slower_kernel_is_found_and_is_open_until_the_former_one_is_back(home: Home) -> None:
    assert [home.passes(OLD, 1.0) for _ in range(8)] == [[]] * 8
    assert [home.passes(NEW, 0.96) for _ in range(3)] == [[("not confirmed", False)]] * 2 + [[("new", True)]]
    (finding,) = home.found()
    assert (finding.since, finding.evidence) == (night(9), "the nights: 8 before, 3 since")
    assert finding.tested == f"receiver1, receiver2, router, sender1, sender2 kernel {OLD} to {NEW}"
    assert finding.effect == pytest.approx(-0.04, abs=0.01)
    assert finding.low is not None
    assert finding.high is not None
    assert finding.low < finding.after - finding.before < finding.high < 0
    assert home.passes(NEW, 0.96, commit="bbbbbbb") == [("open", True)]
    home.count += 1  # the receiver is off: the night has no valid run
    assert home.said() == [("open", True)]
    told = [home.passes(OLD, 1.0, commit="bbbbbbb") for _ in range(3)]
    assert told[-1] == [("recovered", False)]
    assert all(("open", True) in found for found in told[:-1])
    assert home.passes(OLD, 1.0) == []
    (series,) = (of for of in home.history.series() if of.key.metric == "goodput")
    assert len(series.nights) == 16


def test_another_testbed_is_another_series_and_no_alarm(home: Home) -> None:
    for card, share in (("on", 1.0), ("off", 0.9)):
        assert [home.passes(OLD, share, card=card) for _ in range(6)] == [[]] * 6
    assert len([of for of in home.history.series() if of.key.metric == "goodput"]) == 2
    text = page.render(home.folder, home.history).read_text()
    assert "Another testbed since 2026-01-07: router vec1 feature tx-checksumming on to off." in text
