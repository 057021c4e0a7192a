from __future__ import annotations

import html
import inspect
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from dumbbell.execution.collect import collect
from dumbbell.report import figures
from dumbbell.report.notebooks import render, render_points
from dumbbell.report.pages.run import Report
from dumbbell.report.pages.sharing import Sharing
from dumbbell.report.pages.transfer import Transfer
from dumbbell.run.directory import RunDir

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


def test_a_page_is_made_when_its_point_was_judged_after_it(run_dir: Path) -> None:
    run, page = RunDir.open(run_dir), run_dir / "report.html"
    render_points(run)
    assert not page.exists()
    collect(run_dir, None)
    render_points(run)
    made = page.stat().st_mtime_ns
    render_points(run)
    assert page.stat().st_mtime_ns == made
    collect(run_dir, None)
    render_points(run)
    assert page.stat().st_mtime_ns > made


def test_what_changed_while_it_measured_is_shown(run_dir: Path) -> None:
    collect(run_dir, None)
    page = render(run_dir).read_text()
    assert page.count("<td>nothing</td>") == 5
    file = run_dir / "raw/router/measurement/observed.json"
    observed = json.loads(file.read_text())
    observed["after"]["settings"]["nftables"] = "5f2c"
    file.write_text(json.dumps(observed))
    collect(run_dir, None)
    shown = Report(run_dir).states().data
    assert shown.count("<td>nothing</td>") == 4
    assert "nftables changed while it measured: none before, 5f2c after" in shown


def test_every_flow_is_in_every_figure(run_dir: Path) -> None:
    collect(run_dir, None)
    report = Report(run_dir)
    for part in (report.goodput, report.cwnd, report.srtt):
        for flow in ("flow1", "flow2"):
            assert f'"name":"{flow} (cubic' in part().data
    assert "router vec1 (pfifo)" in report.queue().data
    assert "router vec2 (pfifo)" in report.queue().data


def test_a_path_that_changes_is_shown_as_it_was(changing: Path) -> None:
    collect(changing, None)
    report = Report(changing)
    facts = report.facts().data
    assert "router forward from 6 s" in facts
    assert "10 Mbit/s, 20 ms, pfifo, 34 packets" in facts
    (rate,) = _levels(report.goodput().data)
    assert rate == [(0, 20), (6, 10), (9, 10), (12, 10)]
    empty, near, datagrams, far, full = _levels(report.srtt().data)
    assert empty == [(0, 20), (6, 20), (9, 30), (12, 30)]
    for own, level in ((10, near), (20, datagrams), (30, far)):
        assert level == [(at, ms + own) for at, ms in empty]
    # 34 packets of 1514 bytes.
    assert [round(ms - idle, 1) for (_, ms), (_, idle) in zip(full, empty, strict=True)] == [
        20.6,
        41.2,
    ] + 2 * [41.2]


def _levels(page: str) -> list[list[tuple[float, float]]]:
    """Reference lines of a figure."""
    figure, _ = json.JSONDecoder().raw_decode(page, page.index("{", page.index("drawLate(")))
    return [
        list(zip(trace["x"], trace["y"], strict=True))
        for trace in figure["data"]
        if trace["line"].get("shape") == "hv"
    ]


def test_variables_are_shown_with_their_grades(run_dir: Path) -> None:
    collect(run_dir, None)
    shown = Report(run_dir).variables().data
    assert "<th>flow1</th><th>flow2</th>" in shown
    ends = pl.read_parquet(run_dir / "tcp_info.parquet").filter("final", side="sender").sort("flow")
    first, second = ends["total_retrans"]
    assert f"<td>SegsRetrans</td><td>{first}</td><td>{second}</td>" in shown
    assert "<td>MaxRTT</td><td>≈ 31\N{NARROW NO-BREAK SPACE}000</td>" in shown
    assert "<td>DupAcksIn</td><td>-</td><td>-</td>" in shown  # no trace, and never a 0
    (run_dir / "web100.parquet").unlink()
    assert 'class="missing"' in Report(run_dir).variables().data


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


def _lose_telegraf(run_dir: Path) -> None:
    collect(run_dir, None)
    for path in run_dir.glob("*.parquet"):
        if path.stem not in ("tcp_info", "flows", "qdisc"):
            path.unlink()


def _lose_a_host(run_dir: Path) -> None:
    shutil.rmtree(run_dir / "raw/sender1")
    collect(run_dir, None)


def _lose_a_flow(run_dir: Path) -> None:
    collect(run_dir, None)
    for name in ("tcp_info", "web100"):
        table = pl.read_parquet(run_dir / f"{name}.parquet")
        table.filter(pl.col("flow") != "flow1").write_parquet(run_dir / f"{name}.parquet")
    flows = pl.read_parquet(run_dir / "flows.parquet")
    never = pl.when(pl.col("name") != "flow1").then("goodput_bps").alias("goodput_bps")
    flows.with_columns(never).write_parquet(run_dir / "flows.parquet")


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (
            _lose_telegraf,
            {"variables": "has no readable web100.parquet", "flows": "has no http_fetch, udp.parquet"},
        ),
        (_lose_a_host, {"header": "sender1", "budget": "The sender's socket of flow1 was not sampled"}),
        (_lose_a_flow, {"fairness": "At no time do two sampled flows", "budget": "flow1 was not sampled"}),
    ],
)
def test_every_part_says_what_is_missing(
    run_dir: Path, lose: Callable[[Path], None], said: dict[str, str]
) -> None:
    lose(run_dir)
    asked = {"cumulative": ("Timeouts",), "per_second": ("SlowStart", "SendStall")}
    found = {
        name: getattr(page(run_dir), name)(*asked.get(name, ())).data
        for page in (Report, Sharing, Transfer)
        for name, _ in inspect.getmembers(page, lambda member: hasattr(member, "__wrapped__"))
    }
    assert len(found) > 20
    for name, sentence in said.items():
        assert sentence in html.unescape(found[name])


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


def test_the_command_runs_what_was_kept(run_dir: Path) -> None:
    command = f"playbooks/run.yml -e scenario=results/{run_dir.name}/scenario.yml"
    assert f"{command}</pre>" in Report(run_dir).reproduce().data
    plan = json.loads((run_dir / "plan.json").read_text())
    (run_dir / "plan.json").write_text(json.dumps(plan | {"profile": "short"}))
    assert f"{command} -e profile=short</pre>" in Report(run_dir).reproduce().data
