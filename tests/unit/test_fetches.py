"""Fetches over HTTP, from the rows of both ends to the verdict, the tables and the report."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from damage import edit, edit_events
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import REPOSITORY, write_run, write_spool

from dumbbell import analysis
from dumbbell.execution.collect import collect
from dumbbell.facts.check import Check
from dumbbell.plan import Plan
from dumbbell.report.pages.run import Report
from dumbbell.report.pages.summary import render_summary
from dumbbell.run.record import read_json
from dumbbell.validity.verdict import Verdict

SCENARIO = REPOSITORY / "tests/e2e/fetches.yml"
S = 10**9


@pytest.fixture(scope="module")
def _written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("fetches") / "run"
    write_run(run_dir, SCENARIO)
    return run_dir


@pytest.fixture
def run_dir(_written: Path, tmp_path: Path) -> Path:
    """Flow ``web`` fetches 20 times over new connections, ``kept`` as often as it can over one."""
    return Path(shutil.copytree(_written, tmp_path / "run"))


def table(run_dir: Path) -> pl.DataFrame:
    return analysis.fetches(pl.read_parquet(run_dir / "http_fetch.parquet"))


def measured(run_dir: Path, metric: str, **asked: Any) -> Check:
    """The check of one expectation on ``web``."""
    bound = {"metric": metric, "flows": ["web"], "window_ns": [0, 15 * S], "min": 1e15, "max": None}
    edit(run_dir / "plan.json", lambda plan: plan["points"][0].update(expect=[bound | asked]))
    (check,) = (check for check in collect(run_dir, None).checks if check.name == metric)
    return check


# --- a run in which all went as asked -------------------------------------------------------------


def test_a_run_of_fetches_passes(run_dir: Path) -> None:
    verdict = collect(run_dir, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    facts = {(c.name, c.subject): (c.requested, c.measured) for c in verdict.checks}
    names = ("fetches", "fetches served", "connections")
    kept = read_json(run_dir / "raw/sender2/measurement/http-kept-receiver.json")["begun"]
    assert [facts[name, "web"] for name in names] == [(20, 20)] * 3
    assert [facts[name, "kept"] for name in names] == [(kept, kept), (kept, kept), (1, 1)]
    assert facts["congestion control", "web"] == ("reno", "reno")
    assert facts["start", "kept"] == (0, 150_000)
    rows = read_json(run_dir / "manifest.json")["rows"]["spooled"]
    assert rows["http_fetch"] == 2 * (20 + kept)


def test_what_the_table_of_flows_says_of_them(run_dir: Path) -> None:
    collect(run_dir, None)
    fetched = table(run_dir)
    for flow in pl.read_parquet(run_dir / "flows.parquet").filter(kind="http").iter_rows(named=True):
        own = fetched.filter(flow=flow["name"])
        assert flow["fetches_begun"] == flow["fetches_done"] == own.height
        for percent in (50, 95, 99):
            expected = np.percentile(own["completion_ns"].to_numpy(), percent)
            assert flow[f"completion_p{percent}_ns"] == pytest.approx(expected)
        assert flow["fetch_retransmits"] == flow["fetch_timeouts"] == own.height // 5


def test_goodput_is_that_of_whole_fetches(run_dir: Path) -> None:
    collect(run_dir, None)
    rows = pl.read_parquet(run_dir / "http_fetch.parquet")
    counted = analysis.fetch_counters(rows)
    kept = counted.filter(flow="kept")
    assert kept["bytes"].is_sorted()
    assert kept["t_ns"].is_sorted()
    assert kept["bytes"].max() == 7680 * table(run_dir).filter(flow="kept").height
    first = table(run_dir).filter(flow="kept").row(0, named=True)
    middle = first["t_ns"] + first["completion_ns"] // 2
    (rate,) = analysis.goodput(counted, [first["t_ns"], middle]).filter(flow="kept")["goodput_bps"]
    assert rate == pytest.approx(7680 * 8e9 / first["completion_ns"])


def test_the_report_has_a_table_of_them(run_dir: Path) -> None:
    collect(run_dir, None)
    report = Report(run_dir)
    rows = re.findall(r"<tr><td>(\w+)</td>(.*?)</tr>", report.fetches().data)
    cells = {name: re.findall(r"<td>(.*?)</td>", rest) for name, rest in rows}
    assert cells["web"][1:3] == ["one for each", "20 of 20"]
    assert cells["kept"][1] == "one for all"
    assert cells["web"][6:] == ["4", "4"]
    assert cells["web"][3] == "70.72 ms"  # two round trips, and 76 800 bytes at 20 Mbit/s
    assert "Median fetch web" in report.header().data
    assert '"name":"web (reno' in report.goodput().data
    assert "2 of 2" in report.facts().data  # of expectations of one metric that differ


def test_a_report_without_fetches_has_none(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    collect(tmp_path / "run", None)
    assert Report(tmp_path / "run").fetches().data == ""


def test_the_page_of_several_points_compares_them(tmp_path: Path) -> None:
    flow = {
        "name": "web",
        "kind": "http",
        "run": "x",
        "baseline": None,
        "goodput_bps": None,
        "verdict": "passed",
    }
    times = [(size, "passed", p50) for size in ("768B", "76800B") for p50 in (10e6, 20e6, 40e6)]
    rows = [
        flow | {"level_size": size, "verdict": state, "completion_p50_ns": p50, "completion_p95_ns": 3 * p50}
        for size, state, p50 in [*times, ("768B", "invalid", 9e9)]
    ]
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(tmp_path / "flows.parquet")
    plan = Plan(schema_version=2, scenario="x", title="x", profile=None, seed=1, points=[])
    (tmp_path / "plan.json").write_bytes(plan.to_json())
    (tmp_path / "verdict.json").write_text('{"state": "passed", "reasons": [], "points": []}')
    page = render_summary(tmp_path).read_text()
    row = "<td>{}</td><td>web</td><td>{}</td><td>{}</td><td>3</td>".format
    for size in ("768B", "76800B"):
        assert row(size, "20 ms", "10 ms to 40 ms") in page
        assert row(size, "60 ms", "30 ms to 120 ms") in page


# --- metrics --------------------------------------------------------------------------------------


@pytest.mark.parametrize("percentile", [0, 50, 90, 100])
def test_completion_times_of_fetches_that_begin_in_the_window(run_dir: Path, percentile: float) -> None:
    check = measured(run_dir, "completion_time", percentile=percentile, window_ns=[S, 3 * S])
    own = table(run_dir).filter(pl.col("t_ns").is_between(S, 3 * S), flow="web")
    assert 0 < own.height < 20
    assert check.measured == pytest.approx(np.percentile(own["completion_ns"].to_numpy(), percentile))
    assert (check.kind, check.unit) == ("expect", "ns")


def test_retransmits_are_a_share_of_all_segments_of_fetches(run_dir: Path) -> None:
    segments = -(-76_800 // 1448)
    assert measured(run_dir, "retransmits").measured == pytest.approx(4 / (20 * segments + 4))


def test_a_window_without_fetches(run_dir: Path) -> None:
    check = measured(run_dir, "completion_time", window_ns=[14 * S, 15 * S])
    assert (check.kind, check.ok) == ("validity", False)
    assert check.reason == "completion_time not known: no fetch that began in the window was done"


# --- verdict --------------------------------------------------------------------------------------

CLIENT, SERVER = "raw/receiver1/measurement", "raw/sender1/measurement"


def rows(folder: str, change: Callable[[str], str | None]) -> Callable[[Path], None]:
    """Change or leave out rows of fetches of one end."""

    def damage(run_dir: Path) -> None:
        spool = run_dir / folder / "spool.lp"
        lines = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
        changed = [change(line) if line.startswith("http_fetch,") else line for line in lines]
        assert changed != lines
        write_spool(spool, [line for line in changed if line is not None])

    return damage


def fetch(number: int, change: Callable[[str], str | None]) -> Callable[[str], str | None]:
    return lambda line: change(line) if f" fetch={number}i," in line else line


def failed(line: str) -> str:
    """The row of a fetch that fails after its first byte."""
    return line.replace("completion_ns", "spent_ns").replace(
        ",congestion_control", ',error="after 600 of 76800 bytes: unexpected EOF",congestion_control'
    )


def result(host: str, flow: str, **changed: int) -> Callable[[Path], None]:
    path = f"raw/{host}/measurement/http-{flow}-receiver.json"
    return lambda run_dir: edit(run_dir / path, lambda found: found.update(changed))


INVALID: dict[str, tuple[Callable[[Path], None], str]] = {
    "a fetch failed": (
        rows(CLIENT, fetch(7, failed)),
        "web: 19 of 20 fetches were done, 1 failed, the first: after 600 of 76800 bytes: unexpected EOF",
    ),
    "the time did not suffice": (
        rows(CLIENT, fetch(20, lambda line: line.replace("completion_ns", "spent_ns"))),
        "web: 19 of 20 fetches were done",
    ),
    "a row is missing": (rows(CLIENT, fetch(3, lambda _: None)), "web: 19 of 20 fetches were done"),
    "a body was short": (
        rows(CLIENT, fetch(5, lambda line: line.replace("received_bytes=76800i", "received_bytes=76799i"))),
        "web: 19 of 20 fetches were done",
    ),
    "a fetch that was not cut is missing": (
        result("sender2", "kept", begun=1000),
        "kept: 45 of 1000 fetches were done",
    ),
    "nothing was fetched in the time": (
        lambda run_dir: (
            rows("raw/sender2/measurement", lambda _: None)(run_dir),
            result("sender2", "kept", begun=1, done=0, cut=1)(run_dir),
        )[0],
        "kept: 0 of 1 fetches were done",
    ),
    "the client left no result": (
        lambda run_dir: (run_dir / CLIENT / "http-web-receiver.json").unlink(),
        "web: the client left no result: it is not known which fetches have begun",
    ),
    "the server left no rows": (
        rows(SERVER, fetch(4, lambda _: None)),
        "web: fetches of which the server told: asked 20, found 19",
    ),
    "a connection did not persist": (
        rows(
            "raw/sender2/measurement",
            fetch(9, lambda line: line.replace(",first_byte_ns", ",connect_ns=1i,first_byte_ns")),
        ),
        "kept: connections: asked 1, found 2",
    ),
    "another congestion control sent": (
        rows(SERVER, fetch(6, lambda line: line.replace('"reno"', '"cubic"'))),
        "web: congestion control: asked reno, found cubic, reno",
    ),
    "the first fetch began late": (
        lambda run_dir: edit_events(
            run_dir / CLIENT / "events.jsonl", "flow_first_data", error_ns=580_000_000
        ),
        "web: start error is 580 ms, more than 500 ms",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), INVALID.values(), ids=INVALID.keys())
def test_each_check_of_fetches_can_fail(run_dir: Path, damage: Callable[[Path], None], reason: str) -> None:
    damage(run_dir)
    verdict: Verdict = collect(run_dir, None)
    assert verdict.state == "invalid"
    assert reason in verdict.reasons, verdict.reasons


def test_a_fetch_that_the_end_cuts_is_no_failure_where_none_is_counted(run_dir: Path) -> None:
    def cut(line: str) -> str:
        return line.replace("completion_ns", "cut_ns")

    begun = read_json(run_dir / "raw/sender2/measurement/http-kept-receiver.json")["begun"]
    rows("raw/sender2/measurement", fetch(begun, cut))(run_dir)
    result("sender2", "kept", done=begun - 1, cut=1)(run_dir)
    verdict = collect(run_dir, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    kept = pl.read_parquet(run_dir / "flows.parquet").filter(name="kept").row(0, named=True)
    assert (kept["fetches_begun"], kept["fetches_done"]) == (begun, begun - 1)
    counted = analysis.fetch_counters(pl.read_parquet(run_dir / "http_fetch.parquet")).filter(flow="kept")
    assert counted["bytes"].max() == 7680 * begun  # what came of it counts


# --- transfers whose sizes and begins are drawn ---------------------------------------------------

DRAWN = "transfers: {sizes: {weighted: {7680B: 3, 153600B: 1}}, per_second: 8, within: 12s}"


@pytest.fixture(scope="module")
def _drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    asked = "size: 76800B\n    count: 20\n    think: 50ms"
    text = SCENARIO.read_text()
    assert asked in text
    (folder / "fetches.yml").write_text(text.replace(asked, DRAWN))
    write_run(folder / "run", folder / "fetches.yml")
    return folder / "run"


@pytest.fixture
def drawn(_drawn: Path, tmp_path: Path) -> Path:
    """Flow ``web`` makes transfers of two sizes, some of which overlap."""
    return Path(shutil.copytree(_drawn, tmp_path / "run"))


def test_a_run_of_transfers_passes(drawn: Path) -> None:
    verdict = collect(drawn, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    plan = Plan.model_validate_json((drawn / "plan.json").read_bytes())
    flow = plan.points[0].phase("measurement").flows[0]
    assert flow.transfers is not None
    facts = {(c.name, c.subject): (c.requested, c.measured) for c in verdict.checks}
    assert facts["fetches", "web"] == (len(flow.transfers), len(flow.transfers))
    assert facts["begins of transfers", "web"] == (0, 150_000)
    own = table(drawn).filter(flow="web")
    assert own["received_bytes"].to_list() == [transfer.bytes for transfer in flow.transfers]
    flows = pl.read_parquet(drawn / "flows.parquet").filter(phase="measurement", name="web")
    assert flows["completion_p95_ns"].item() == pytest.approx(np.percentile(own["completion_ns"], 95))
    assert "<td>drawn</td>" in Report(drawn).fetches().data


def test_goodput_of_transfers_that_overlap(drawn: Path) -> None:
    collect(drawn, None)
    own = table(drawn).filter(flow="web")
    begin, took = own["t_ns"].to_numpy(), own["completion_ns"].to_numpy()
    assert (begin[1:] < (begin + took)[:-1]).any()
    counted = analysis.fetch_counters(pl.read_parquet(drawn / "http_fetch.parquet")).filter(flow="web")
    assert counted["bytes"].is_sorted()
    assert counted["bytes"].max() == own["received_bytes"].sum()
    for start, end in ((S // 2, 2 * S), (S, 5 * S), (3 * S, 11 * S)):
        inside = (np.clip(begin + took, start, end) - np.clip(begin, start, end)) / took
        expected = 8e9 * (inside * own["received_bytes"].to_numpy()).sum() / (end - start)
        (rate,) = analysis.goodput(counted, [start, end])["goodput_bps"]
        assert rate == pytest.approx(expected, rel=1e-3)


DRAWN_INVALID: dict[str, tuple[Callable[[Path], None], str]] = {
    "a transfer had the size of another": (
        rows(CLIENT, lambda line: line.replace("received_bytes=153600i", "received_bytes=7680i")),
        "fetches were done",
    ),
    "one did not begin": (result("receiver1", "web", begun=1, done=1), "the client began 1 of "),
    "one is missing": (rows(CLIENT, fetch(3, lambda _: None)), "there are transfers without a row"),
    "one began late": (
        lambda run_dir: edit(
            run_dir / "plan.json",
            lambda plan: plan["points"][0]["phases"][1]["flows"][0]["transfers"][0].update(at_ns=-S),
        ),
        "web: the largest error of a begin is 1 s, more than 500 ms",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), DRAWN_INVALID.values(), ids=DRAWN_INVALID.keys())
def test_each_check_of_transfers_can_fail(drawn: Path, damage: Callable[[Path], None], reason: str) -> None:
    damage(drawn)
    verdict = collect(drawn, None)
    assert verdict.state == "invalid"
    assert any(reason in why for why in verdict.reasons), verdict.reasons


# --- from rows to fetches -------------------------------------------------------------------------


def test_old_kernels_do_not_tell_of_timeouts(run_dir: Path) -> None:
    rows(SERVER, lambda line: re.sub(r"total_rto=\d+i,", "", line))(run_dir)
    assert collect(run_dir, None).state == "passed"
    flows = pl.read_parquet(run_dir / "flows.parquet")
    assert flows.filter(name="web")["fetch_timeouts"].to_list() == [None]
    assert flows.filter(name="web")["fetch_retransmits"].to_list() == [4]


@settings(deadline=None)
@given(
    connections=st.lists(
        st.lists(st.tuples(st.integers(1, 100), st.integers(0, 9)), min_size=1, max_size=5), max_size=5
    )
)
def test_counts_of_a_connection_belong_to_its_fetches(connections: list[list[tuple[int, int]]]) -> None:
    """Whatever each fetch over each connection took is found again from the counts since its begin."""
    sent: list[tuple[int, ...]] = []
    expected: list[tuple[int, ...]] = []
    for cookie, fetches in enumerate(connections):
        segments = again = 0
        for own_segments, own_again in fetches:
            segments, again = segments + own_segments, again + own_again
            sent.append((len(sent) + 1, cookie, segments, again, again))
            expected.append((own_segments, own_again, own_again))
    names = ("fetch", "cookie", "data_segs_out", "total_retrans", "total_rto")
    schema = dict.fromkeys(names, pl.Int64)
    server = pl.DataFrame(sent, schema=schema, orient="row").with_columns(side=pl.lit("sender"))
    times = ("t_ns", "connect_ns", "first_byte_ns", "completion_ns", "cut_ns", "received_bytes")
    client = server.select("fetch", side=pl.lit("receiver"), **dict.fromkeys(times, pl.lit(5)))
    both = pl.concat([server, client], how="diagonal").with_columns(
        flow=pl.lit("web"), error=pl.lit(None, pl.String)
    )
    assert analysis.fetches(both).select("segments", "retransmits", "timeouts").rows() == expected


def test_the_scenario_says_what_the_flows_are(run_dir: Path) -> None:
    flows = json.loads((run_dir / "plan.json").read_text())["points"][0]["phases"][1]["flows"]
    assert [(f["name"], f["src_host"], f["direction"]) for f in flows] == [
        ("web", "sender1", "forward"),
        ("kept", "receiver2", "reverse"),
    ]
