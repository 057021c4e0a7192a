from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from dumbbell.report import Report, figures, render
from dumbbell.store import collect

FIGURES = ("goodput", "fairness", "cwnd", "srtt", "queue")


def test_the_report_is_one_complete_file(run_dir: Path) -> None:
    collect(run_dir, None)
    path = render(run_dir)
    page = path.read_text()
    assert path == run_dir / "report.html"
    assert page.count("plotly-graph-div") == len(FIGURES)
    assert len(re.findall(r"plotly\.js v\d", page)) == 1
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    assert "PASSED" in page
    assert "from dumbbell" not in page


def test_every_flow_is_in_every_figure(run_dir: Path) -> None:
    collect(run_dir, None)
    report = Report(run_dir)
    for part in (report.goodput, report.cwnd, report.srtt):
        for flow in ("flow1", "flow2"):
            assert f'"name":"{flow} (cubic' in part().data
    assert "router vec1 (pfifo)" in report.queue().data
    assert "router vec2 (pfifo)" in report.queue().data


def test_reasons_of_an_invalid_run_stand_at_the_top(run_dir: Path) -> None:
    (run_dir / "raw/sender1/measurement/spool.lp").unlink()
    collect(run_dir, None)
    report = Report(run_dir)
    assert "INVALID" in report.header().data
    assert "the spool is missing" in report.header().data
    assert "not ok" in report.facts().data
    assert 'class="missing"' not in report.goodput().data


@pytest.mark.parametrize("name", ["plan.json", "manifest.json", "verdict.json", "scenario.yml"])
@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_a_missing_or_broken_file_gives_a_sentence(run_dir: Path, name: str, content: str | None) -> None:
    collect(run_dir, None)
    if content is None:
        (run_dir / name).unlink()
    else:
        (run_dir / name).write_text(content)
    report = Report(run_dir)
    for part in ("header", "facts", *FIGURES, "hosts", "reproduce"):
        assert getattr(report, part)().data


@pytest.mark.parametrize("name", ["tcp_info", "qdisc", "flows"])
def test_a_missing_or_empty_table_gives_a_sentence(run_dir: Path, name: str) -> None:
    collect(run_dir, None)
    path = run_dir / f"{name}.parquet"
    empty = pl.read_parquet(path).clear()
    for content in (None, empty):
        path.unlink() if content is None else content.write_parquet(path)
        report = Report(run_dir)
        sentences = [part for part in FIGURES if 'class="missing"' in getattr(report, part)().data]
        expected = {"tcp_info": ["goodput", "fairness", "cwnd", "srtt"], "qdisc": ["queue"], "flows": []}
        assert sentences == expected[name]
        assert report.header().data


def test_an_empty_directory_is_reported_on(tmp_path: Path) -> None:
    page = render(tmp_path).read_text()
    assert page.count('class="missing"') >= len(FIGURES)
    assert "UNKNOWN" in page


def test_text_from_the_run_is_escaped(run_dir: Path) -> None:
    plan = json.loads((run_dir / "plan.json").read_text())
    (run_dir / "plan.json").write_text(json.dumps(plan | {"title": "<script>alert(1)</script>"}))
    collect(run_dir, None)
    assert "<script>" not in Report(run_dir).header().data


def test_thinning_keeps_the_extremes() -> None:
    values = [0.0] * 100_000
    values[77_777], values[12_345] = 9.0, -9.0
    rows = pl.DataFrame({"t_ns": range(100_000), "y": values})
    kept = figures.thin(rows, "y")
    assert kept.height <= figures.MAX_POINTS
    assert (kept["y"].max(), kept["y"].min()) == (9.0, -9.0)
    assert kept["t_ns"].is_sorted()
