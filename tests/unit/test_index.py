"""The index of all runs, of directories in whatever state they are."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from dumbbell.report.pages.index import NEWEST, render_index
from dumbbell.run.record import record_state
from dumbbell.studies.listed import Listed


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (folder := tmp_path / "results").mkdir()
    return folder


def point(folder: Path, state: str, utilisation: float, goodput_bps: float) -> None:
    """What the index reads of a point."""
    folder.mkdir(parents=True)
    checks = [
        {"kind": "validity", "name": "rate", "measured": 5, "unit": "bps"},
        {"kind": "expect", "name": "utilisation", "measured": utilisation, "unit": "share"},
    ]
    (folder / "verdict.json").write_text(json.dumps({"state": state, "reasons": ["a & b"], "checks": checks}))
    flow = {"phase": "measurement", "kind": "iperf3_tcp", "goodput_bps": goodput_bps}
    pl.DataFrame([flow]).write_parquet(folder / "flows.parquet")


def rows(page: str, scenario: str) -> list[list[str]]:
    """Cells of the table of a scenario's runs, as text."""
    section = page.partition(f'<h2 id="{scenario}">')[2].partition("<h2")[0]
    found = re.findall("<tr>(<td>.*?)</tr>", section)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall("<td>(.*?)</td>", row)] for row in found]


def test_runs_stand_by_scenario_the_newest_first(results: Path) -> None:
    point(results / "20260102T000000Z_x", "passed", 0.9, 90e6)
    point(results / "20260103T000000Z_x", "failed", 0.7, 70e6)
    point(results / "20260101T120000Z_x", "invalid", 0.2, 20e6)
    point(results / "20260101T000000Z_y", "passed", 0.8, 80e6)
    (results / "latest").symlink_to("20260103T000000Z_x")
    (results / "20260103T000000Z_x/report.html").touch()
    page = render_index(results).read_text()
    assert "runs <b>4</b></span><span>scenarios <b>2</b>" in page
    assert page.index('<h2 id="x">') < page.index('<h2 id="y">')
    assert rows(page, "x") == [
        ["2026-01-03 00:00:00", "✗ FAILED", "0 of 1", "70 %", "70 Mbit/s", "a &amp; b", "report"],
        ["2026-01-02 00:00:00", "✓ PASSED", "1 of 1", "90 %", "90 Mbit/s", "a &amp; b", "files"],
        ["2026-01-01 12:00:00", "⚠ INVALID", "0 of 1", "-", "-", "a &amp; b", "files"],
    ]
    assert 'href="20260103T000000Z_x/report.html"' in page


def test_the_curve_has_every_run_and_leaves_out_what_is_no_result(results: Path) -> None:
    for day, (state, share) in enumerate(
        [("passed", 0.5), ("invalid", 9.0), ("failed", 0.3), ("passed", 0.7)], 1
    ):
        point(results / f"2026010{day}T000000Z_x", state, share, 1e6)
    (curve,) = re.findall("<svg.*?</svg>", render_index(results).read_text())
    (line,) = re.findall('<polyline points="(.*?)"', curve)
    assert [tuple(map(float, at.split(","))) for at in line.split()] == [(5, 18), (158.3, 31), (235, 5)]
    assert re.findall('circle class="(.*?)"', curve) == ["met", "unmet", "met"]
    assert curve.count("<path") == 1
    assert "2026-01-02 00:00:00: invalid, -" in curve


def manifest(folder: Path, machine: str, *, virtual: bool = False, hosts: int = 2) -> None:
    """What a manifest says of where its run was."""
    found = {
        f"host{i}": {"groups": ["testbed"], "hardware": {"machine": machine, "carried by": folder.name}}
        for i in range(hosts)
    }
    told = {"hosts": found, "digests": {"tcp_info": "aa"} if virtual else None}
    (folder / "manifest.json").write_text(json.dumps(told))


def overview(page: str) -> list[list[str]]:
    """Cells of the table of all scenarios, as text; a curve is the number of its marks."""
    table = page.partition("<h2")[0].partition("<table")[2]
    found = re.findall("<tr>(<td>.*?)</tr>", table)
    cells = [re.findall("<td>(.*?)</td>", row) for row in found]
    return [
        [str(len(re.findall("<title>", c))) if "<svg" in c else re.sub("<.*?>", "", c) for c in row]
        for row in cells
    ]


def test_a_testbed_has_a_curve_of_its_own(results: Path) -> None:
    for day, (machine, virtual, hosts, share) in enumerate(
        [
            ("Vendor R650", False, 2, 0.9),
            ("UML", False, 2, 0.5),
            ("UML", True, 2, 0.7),
            ("UML", False, 2, 0.6),
            ("Vendor R650", False, 3, 0.8),
            ("Vendor R650", False, 2, 0.95),
        ],
        1,
    ):
        point(run := results / f"2026010{day}T000000Z_x", "passed", share, 1e6)
        manifest(run, machine, virtual=virtual, hosts=hosts)
    page = render_index(results).read_text()
    assert [[cells[i] for i in (0, 1, 2, 6, 7, 8, 9)] for cells in overview(page)] == [
        ["x", "Vendor R650, 2 hosts", "2", "2", "90 %", "95 %", "95 %"],
        ["x", "Vendor R650, 3 hosts", "1", "1", "80 %", "80 %", "80 %"],
        ["x", "UML, 2 hosts", "2", "2", "50 %", "60 %", "60 %"],
        ["x", "virtual time, 2 hosts", "1", "1", "70 %", "70 %", "70 %"],
    ]
    assert [cells[1] for cells in rows(page, "x")][:3] == [
        *("Vendor R650, 2 hosts", "Vendor R650, 3 hosts", "UML, 2 hosts")
    ]


def test_a_sweep_is_where_its_points_were(results: Path) -> None:
    run = results / "20260101T000000Z_x"
    point(run / "points" / "001", "aborted", 0.5, 1e6)
    point(run / "points" / "002", "passed", 0.5, 1e6)
    manifest(run / "points" / "002", "UML", virtual=True)
    assert Listed(run).testbed.name == "virtual time, 2 hosts"


def test_a_run_of_several_points_has_the_numbers_of_the_valid_ones(results: Path) -> None:
    run = results / "20260101T000000Z_x"
    for number, (state, share) in enumerate([("passed", 0.5), ("invalid", 0.1), ("failed", 0.6)], 1):
        point(run / "points" / f"{number:03d}", state, share, 1e6)
    point(run / "points" / "002_attempt1", "passed", 0.9, 1e6)  # an earlier attempt is no point
    record_state(run, "planned")
    assert Listed(run).state == "planned"
    assert Listed(run).point_states == ["passed", "invalid", "failed"]
    points = [
        {"directory": f"points/00{n}", "state": s} for n, s in ((1, "passed"), (2, "invalid"), (3, "failed"))
    ]
    (run / "verdict.json").write_text(
        json.dumps({"state": "invalid", "reasons": ["p", "q"], "points": points})
    )
    flows = pl.DataFrame(
        {
            "phase": "measurement",
            "kind": "iperf3_tcp",
            "goodput_bps": [1e6, 9e9, 2.5e6],
            "verdict": ["passed", "invalid", "failed"],
        }
    )
    flows.write_parquet(run / "flows.parquet")
    assert rows(render_index(results).read_text(), "x") == [
        [
            "2026-01-01 00:00:00",
            "⚠ INVALID",
            "1 of 3",
            "50 to 60 %",
            "1 to 2.5 Mbit/s",
            "p; and 1 more",
            "files",
        ]
    ]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"state": 1}', '{"state": "passed", "checks": 5}', "\0"]
)
def test_a_broken_directory_is_listed_as_what_it_is(results: Path, content: str) -> None:
    (run := results / "20260101T000000Z_x").mkdir()
    for name in ("verdict.json", "plan.json", "manifest.json", "flows.parquet", "events.jsonl"):
        (run / name).write_text(content)
    assert rows(render_index(results).read_text(), "x") == [
        ["2026-01-01 00:00:00", "⚠ UNKNOWN", "0 of 1", "verdict.json cannot be read", "files"]
    ]


def test_a_run_without_a_verdict_has_its_last_state(results: Path) -> None:
    for name in ("20260101T000000Z_x", "20269999T000000Z_y", "renamed", "notes"):
        (results / name).mkdir()
    record_state(results / "20260101T000000Z_x", "running", "measurement")
    (results / "renamed/plan.json").write_text('{"scenario": "<z>", "title": "A & B"}')
    page = render_index(results).read_text()
    assert rows(page, "x") == [["2026-01-01 00:00:00", "… RUNNING", "0 of 1", "no verdict yet", "files"]]
    assert rows(page, "y")[0][:2] == ["20269999T000000Z_y", "⚠ UNKNOWN"]
    assert rows(page, "&lt;z&gt;")[0][:2] == ["renamed", "⚠ UNKNOWN"]
    assert "A &amp; B" in page
    assert "notes" not in page


def test_a_real_run_has_what_its_cards_have(results: Path, collected: Path) -> None:
    run = Path(shutil.copytree(collected, results / "20260101T000000Z_two_flow_fairness"))
    found = Listed(run).numbers
    assert [name for name, _ in found] == ["utilisation", "jain_index", "goodput"]
    assert len(found["goodput", "bps"]) == 2


def test_of_several_controllers_at_once_the_last_lists_all(results: Path) -> None:
    names = [f"20260101T0000{n:02d}Z_x" for n in range(40)]

    def end(name: str) -> None:
        point(results / name, "passed", 0.9, 1e6)
        render_index(results)

    with ThreadPoolExecutor(8) as controllers:
        list(controllers.map(end, names))
    page = (results / "index.html").read_text()
    assert len(rows(page, "x")) == len(names)
    assert f"{len(names) - NEWEST} older" in page
    assert not (results / ".index.html").exists()
