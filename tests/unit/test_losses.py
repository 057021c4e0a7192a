"""What flows sent again and lost, in flows.parquet and in the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from synthetic import REPOSITORY, write_run

from dumbbell.execution.collect import collect
from dumbbell.kinds.found.shared import retransmits
from dumbbell.report.pages.run import Report
from dumbbell.run.record import read_json, write_json

IPERF3 = REPOSITORY / "tests" / "unit" / "fixtures" / "iperf3"
COLUMNS = ("retransmitted_segments", "retransmits", "lost_packets", "loss")


def lost(run_dir: Path, flow: str) -> dict[str, Any]:
    """What flows.parquet says of a flow of the measurement."""
    rows = pl.read_parquet(run_dir / "flows.parquet").filter(phase="measurement", name=flow)
    return rows.select(COLUMNS).row(0, named=True)


def test_what_a_tcp_flow_sent_again(run_dir: Path) -> None:
    collect(run_dir, None)
    found = lost(run_dir, "flow1")
    own = pl.read_parquet(run_dir / "tcp_info.parquet").filter(flow="flow1", side="sender").sort("t_ns")
    assert found["retransmitted_segments"] == own["total_retrans"][-1] > 0
    assert found["retransmits"] == pytest.approx(own["total_retrans"][-1] / own["data_segs_out"][-1])
    assert (found["lost_packets"], found["loss"]) == (None, None)


def test_a_counter_of_segments_may_wrap(run_dir: Path) -> None:
    collect(run_dir, None)
    own = pl.read_parquet(run_dir / "tcp_info.parquet").filter(flow="flow1", side="sender")
    before, far = 2**32 - 5000, own.with_columns((pl.col("data_segs_out") + 2**32 - 5000) % 2**32)
    assert max(far["data_segs_out"]) > before  # it begins near the end, and goes on from 0
    again, sent = own.sort("t_ns").select("total_retrans", "data_segs_out").row(-1)
    assert retransmits(far) == (again, again / (sent + before))


def test_what_a_flow_of_datagrams_lost(changing: Path) -> None:
    file = changing / "raw/receiver2/measurement/udp-datagrams-receiver.json"
    result = read_json(file)
    write_json(file, result | {"received_packets": 900, "lost_packets": 100})
    collect(changing, None)
    assert lost(changing, "datagrams") == dict(zip(COLUMNS, (None, None, 100, 0.1), strict=True))
    shown = Report(changing).all_flows().data
    assert "<td>10 %</td>" in shown
    write_json(file, result | {"end_seen": False})  # what was lost last is not known
    collect(changing, None)
    assert lost(changing, "datagrams")["lost_packets"] is None


def test_what_iperf3_lost_over_udp(run_dir: Path) -> None:
    plan = read_json(run_dir / "plan.json")
    (flow, *_) = plan["points"][0]["phases"][1]["flows"]
    flow.update(kind="iperf3_udp", congestion_control=None, rate_bps=4_000_000)
    write_json(run_dir / "plan.json", plan)
    for host, side in (("sender1", "client"), ("receiver1", "server")):
        report = (IPERF3 / f"lossy-{side}.json").read_text()
        (run_dir / "raw" / host / "measurement" / f"iperf3-flow1-{side}.json").write_text(report)
    collect(run_dir, None)
    client, server = (
        json.loads((IPERF3 / f"lossy-{side}.json").read_text()) for side in ("client", "server")
    )
    sent = client["end"]["sum_sent"]["packets"]
    arrived = sum(i["sum"]["packets"] - i["sum"]["lost_packets"] for i in server["intervals"])
    assert 0 < arrived < sent
    found = lost(run_dir, "flow1")
    assert (found["lost_packets"], found["loss"]) == (sent - arrived, (sent - arrived) / sent)


def test_what_fetches_sent_again(tmp_path: Path) -> None:
    write_run(tmp_path / "run", REPOSITORY / "tests" / "e2e" / "fetches.yml")
    collect(tmp_path / "run", None)
    rows = pl.read_parquet(tmp_path / "run" / "flows.parquet").filter(phase="measurement", kind="http")
    for row in rows.iter_rows(named=True):
        assert row["retransmitted_segments"] == row["fetch_retransmits"]
        assert 0 < row["retransmits"] < 1


def many(run_dir: Path) -> list[str]:
    """A run of 25 flows, whose names are in the order of the alphabet from behind."""
    collect(run_dir, None)
    flows = pl.read_parquet(run_dir / "flows.parquet")
    names = [f"flow{number}" for number in range(25, 0, -1)]
    row = flows.filter(phase="measurement").head(1)
    pl.concat([row.with_columns(name=pl.lit(name)) for name in names]).write_parquet(
        run_dir / "flows.parquet"
    )
    plan = read_json(run_dir / "plan.json")
    flow = plan["points"][0]["phases"][1]["flows"][0]
    plan["points"][0]["phases"][1]["flows"] = [flow | {"name": name} for name in names]
    write_json(run_dir / "plan.json", plan)
    web100 = pl.read_parquet(run_dir / "web100.parquet").filter(flow="flow1")
    pl.concat([web100.with_columns(flow=pl.lit(name)) for name in names]).write_parquet(
        run_dir / "web100.parquet"
    )
    return names


def test_all_flows_are_listed_in_the_order_of_the_plan(run_dir: Path) -> None:
    names = many(run_dir)
    report = Report(run_dir)
    shown = report.all_flows().data
    places = [shown.index(f"<td>{name}</td>") for name in names]
    assert places == sorted(places)
    header = report.header().data
    assert [name for name in names if f"Goodput {name}<" in header] == names[:4]
    assert "21 more flows are in the table of flows" in header
    variables = report.variables().data
    assert "".join(f"<th>{name}</th>" for name in names[:8]) in variables
    assert "17 more connections are in web100.parquet" in variables


def test_all_that_a_path_is_asked_is_shown(run_dir: Path) -> None:
    def ask(path: Path, *keys: Any) -> None:
        value = read_json(path)
        place = value
        for key in keys:
            place = place[key]
        place.update(
            jitter_us=2000, distribution="normal", keep_order=True,
            duplicate=0.01, corrupt=0.02, reorder=0.03,
            loss_gemodel={"p": 0.01, "r": 0.3, "loss_bad": 1.0, "loss_good": 0.0},
            flows=[{"delay_us": 30_000, "protocol": "tcp", "src": "198.18.1.11", "dst": "198.18.2.11"}],
        )  # fmt: skip
        place["queue"].update(ecn=True, target_us=5000)
        write_json(path, value)

    ask(run_dir / "plan.json", "points", 0, "path", "forward")
    ask(run_dir / "raw/router/state.json", "path", "forward")
    collect(run_dir, None)
    shown = Report(run_dir).facts().data
    for words in (
        *(
            "jitter 2 ms",
            "distribution normal",
            "keep_order on",
            "duplicate 1 %",
            "corrupt 2 %",
            "reorder 3 %",
        ),
        *("loss_gemodel p 0.010, r 0.300, loss_bad 1", "ecn on", "target 5 ms", "own delays 30 ms"),
    ):
        assert words in shown, words
