"""What senders of TCP Rapid tell of their path, by samples and p-stream by p-stream."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_connection import MS, sampled

from dumbbell import analysis
from dumbbell.report.pages.run import Report

# Of a flow over 100 Mbit/s, as dumbbell-collect had them.
TOLD = {"congestion_control": "rapid", "bbr_bw_Bps": 11_946_800, "bbr_pacing_gain": 0.99609375}
ESTIMATED, LOST = (
    {"verdict": 0, "available_bps": 94_773_696, "rate_bps": 95_665_616},
    {"verdict": 1, "available_bps": 0, "rate_bps": 95_665_616},
)


def traced(*rows: tuple[int, dict[str, Any]], flow: str = "f") -> pl.DataFrame:
    """P-streams: ms, and what they told."""
    key = {"flow": flow, "stream": "0", "side": "sender", "event": "pstream"}
    return pl.DataFrame([key | row | {"t_ns": ms * MS} for ms, row in rows])


def test_available_by_samples() -> None:
    rows = sampled({**TOLD, "bbr_bw_Bps": 0, "bbr_pacing_gain": 0.0}, TOLD)
    assert analysis.available(rows).rows() == [
        ("f", "0", 100 * MS, 8 * 11_946_800, pytest.approx(0.99609375 * 8 * 11_946_800), "samples"),
    ]


def test_what_the_trace_has_goes_before_samples() -> None:
    rows = pl.concat([sampled(TOLD), sampled(TOLD, flow="g")])
    found = analysis.available(rows, traced((50, ESTIMATED), (60, LOST)))
    assert found.select("flow", "t_ns", "available_bps", "source").rows() == [
        ("f", 50 * MS, 94_773_696, "trace"),
        ("f", 60 * MS, None, "trace"),
        ("g", 0, 8 * 11_946_800, "samples"),
    ]
    assert found["rate_bps"][:2].to_list() == [95_665_616, 95_665_616]


def test_bbr_is_not_rapid() -> None:
    assert analysis.available(sampled({**TOLD, "congestion_control": "bbr"})).is_empty()
    assert analysis.available(sampled({})).is_empty()


def test_pstreams_per_second() -> None:
    rows = traced((100, ESTIMATED), (200, LOST), (499, ESTIMATED), (1700, LOST))
    assert analysis.pstreams(rows, [0, 500 * MS, 1000 * MS, 2000 * MS]).rows() == [
        ("f", 250 * MS, 6, 4),
        ("f", 750 * MS, 0, 0),
        ("f", 1500 * MS, 1, 0),
    ]
    assert analysis.pstreams(rows[:0], [0, 500 * MS]).is_empty()


@pytest.fixture
def rapid(collected: Path, tmp_path: Path) -> Path:
    """A run whose flows are of Rapid, and tell what they found."""
    shutil.copytree(collected, run_dir := tmp_path / "run")
    plan = run_dir / "plan.json"
    plan.write_text(re.sub(r'("congestion_control": ?)"cubic"', r'\1"rapid"', plan.read_text()))
    rows = pl.read_parquet(run_dir / "tcp_info.parquet")
    rows.with_columns(**{name: pl.lit(value) for name, value in TOLD.items()}).write_parquet(
        run_dir / "tcp_info.parquet"
    )
    return run_dir


def test_a_run_that_was_not_traced(rapid: Path) -> None:
    report = Report(rapid)
    shown = report.available().data
    assert "<h2>Available bandwidth by Rapid</h2>" in shown
    for flow in ("flow1", "flow2"):
        for told in ("AB_est", "R_avg"):
            assert re.search(rf'"name":"{flow} \(rapid, [^"]*\): {told}"', shown)
    assert "last estimate before each sample" in shown
    assert "by the trace" not in shown
    assert "where sampling.trace is asked for" in report.pstreams().data


def test_a_run_that_was_traced(rapid: Path) -> None:
    parts = [
        traced(*((1000 + 10 * i, ESTIMATED if i % 2 else LOST) for i in range(1000)), flow=flow)
        for flow in ("flow1", "flow2")
    ]
    rows = pl.concat(parts).with_columns(phase=pl.lit("measurement"))
    rows.write_parquet(rapid / "rapid.parquet")
    report = Report(rapid)
    shown = report.available().data
    assert "of each p-stream, by the trace" in shown
    assert "before each sample" not in shown
    counted = report.pstreams().data
    assert counted.count(': with an estimate"') == 2
    assert "in each 1 s" in counted


def test_flows_of_other_congestion_controls_have_none(collected: Path) -> None:
    assert Report(collected).available().data == Report(collected).pstreams().data == ""


def test_nothing_was_told(rapid: Path) -> None:
    rows = pl.read_parquet(rapid / "tcp_info.parquet")
    rows.drop("bbr_bw_Bps", "bbr_pacing_gain").write_parquet(rapid / "tcp_info.parquet")
    assert "No sender of Rapid told" in Report(rapid).available().data
