"""TCP beside UDP that comes and goes, against numbers worked out by hand, and on a run made up."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from captures import Segment, frame, stamps, write

from dumbbell import analysis
from dumbbell.report.pages.cross_traffic import CrossTraffic
from dumbbell.run.record import read_json, write_json

S = 10**9
M = 10**6


# --- by hand --------------------------------------------------------------------------------------


def test_periods_of_one_flow() -> None:
    steps = [(10 * S, 50 * M), (20 * S, 0), (30 * S, 50 * M), (40 * S, 0)]
    assert analysis.periods([steps], 60 * S).rows() == [
        (0, 10 * S, 0),
        (10 * S, 20 * S, 50 * M),
        (20 * S, 30 * S, 0),
        (30 * S, 40 * S, 50 * M),
        (40 * S, 60 * S, 0),
    ]


def test_periods_of_flows_that_overlap_are_sums() -> None:
    flows = [[(0, 5), (20, 0)], [(10, 3), (30, 0)], [(15, 0)], [(99, 7)]]
    assert analysis.periods(flows, 40).rows() == [(0, 10, 5), (10, 20, 8), (20, 30, 3), (30, 40, 0)]


def test_periods_of_a_flow_from_the_begin_to_the_end() -> None:
    assert analysis.periods([[(0, 5), (40, 0)]], 40).rows() == [(0, 40, 5)]
    assert analysis.periods([], 40).rows() == [(0, 40, 0)]


def counters(flow: str, *rows: tuple[int, int]) -> pl.DataFrame:
    table = {"flow": flow, "stream": "0"}
    return pl.DataFrame([table | {"t_ns": at, "bytes": count} for at, count in rows])


SPANS = pl.DataFrame(
    {"start_ns": [0, 10 * S, 20 * S], "end_ns": [10 * S, 20 * S, 30 * S], "asked_bps": [0, 8 * M, 0]}
)


def datagrams(*rows: tuple[int, int, int]) -> pl.DataFrame:
    """Of the receiver: time, packets received and lost; of the sender a row that must not count."""
    common = {"flow": "cross", "side": "receiver"}
    found = [common | {"t_ns": at, "received_packets": got, "lost_packets": lost} for at, got, lost in rows]
    return pl.DataFrame([*found, common | {"side": "sender", "t_ns": 0}], infer_schema_length=None)


def test_what_each_got_in_each_period() -> None:
    counted = pl.concat(
        [
            # 8 Mbit/s, then a quarter of it, then 6.
            counters("tcp", (0, 0), (10 * S, 10 * M), (20 * S, 12_500_000), (30 * S, 20 * M)),
            counters("cross", (10 * S, 0), (20 * S, 7_500_000)),
        ]
    )
    found = analysis.beside(counted, datagrams((10 * S, 0, 0), (20 * S, 600, 200)), SPANS, ["cross"])
    assert found.rows() == [
        (0, 10 * S, 0, None, None, None, 8e6),
        (10 * S, 20 * S, 8 * M, 6e6, 600, 200, 2e6),
        (20 * S, 30 * S, 0, None, None, None, 6e6),
    ]
    assert analysis.on_off(found) == {
        "asked_bps": 8e6,
        "udp_bps": 6e6,
        "loss": 0.25,
        "tcp_on_bps": 2e6,
        "tcp_off_bps": 7e6,
    }


def test_what_came_between_two_samples_came_while_it_was_on() -> None:
    """8 Mbit/s from 10 to 20 s and from 30 to 40 s, sampled 0.3 s after each half second."""
    spans = analysis.periods([[(10 * S, 8 * M), (20 * S, 0), (30 * S, 8 * M), (40 * S, 0)]], 40 * S)

    def sent(at: int) -> int:
        return (min(max(at - 10 * S, 0), 10 * S) + max(min(at, 40 * S) - 30 * S, 0)) // 1000

    times = [half * S // 2 + 3 * S // 10 for half in range(82)]
    counted = counters("cross", *((at, sent(at)) for at in times))
    found = analysis.beside(
        counted, datagrams(*((at, sent(at) // 1000, 0) for at in times)), spans, ["cross"]
    )
    asked = {"udp_bps": [0, 8e6, 0, 8e6], "received_packets": [0, 10_000, 0, 10_000]}
    assert {name: found[name].to_list() for name in asked} == {
        name: pytest.approx(rates) for name, rates in asked.items()
    }


def test_udp_alone_has_no_tcp() -> None:
    counted = counters("cross", (10 * S, 0), (20 * S, 7_500_000))
    found = analysis.on_off(analysis.beside(counted, datagrams((10 * S, 0, 0)), SPANS, ["cross"]))
    assert (found["udp_bps"], found["loss"], found["tcp_on_bps"], found["tcp_off_bps"]) == (
        6e6,
        None,
        None,
        None,
    )


def test_means_are_by_time() -> None:
    columns = ["start_ns", "end_ns", "asked_bps", "udp_bps", "received_packets", "lost_packets", "tcp_bps"]
    rows = [(0, 10, 4, 4.0, 30, 10, 1.0), (10, 40, 8, 8.0, 60, 0, 5.0), (40, 50, 0, None, 0, 0, 9.0)]
    found = analysis.on_off(pl.DataFrame(rows, schema=columns, orient="row"))
    assert (found["asked_bps"], found["udp_bps"], found["tcp_on_bps"], found["tcp_off_bps"]) == (7, 7, 4, 9)
    assert found["loss"] == 0.1


def test_means_of_fast_links_and_long_times() -> None:
    spans = pl.DataFrame(
        {"start_ns": [0, 600 * S], "end_ns": [600 * S, 8 * 3600 * S], "asked_bps": [100 * 1000 * M, 0]}
    )
    counted = counters("cross", (0, 0), (600 * S, 7_500_000_000_000))
    found = analysis.on_off(analysis.beside(counted, datagrams((0, 0, 0)), spans, ["cross"]))
    assert found["asked_bps"] == pytest.approx(100e9)
    assert found["udp_bps"] == pytest.approx(100e9)


def test_growth_across_an_edge_is_shared_out() -> None:
    rows = [
        ("a", 9_500_000_000, S, 7),
        ("a", 10_500_000_000, S, 10),  # half of it in each
        ("a", 12 * S, 2 * S, 4),
        ("a", 31 * S, 4 * S, 8),  # three quarters of it after 27 s and before 30 s
        ("b", 15 * S, S, 1),
    ]
    snmp = pl.DataFrame(rows, schema=["host", "t_ns", "interval_ns", "delta"], orient="row")
    first = pl.DataFrame({"host": ["a"], "t_ns": [-2 * S], "interval_ns": [None], "delta": [None]})
    found = analysis.growth_by_period(
        pl.concat([first.cast(snmp.schema), snmp]),
        SPANS,
        ["host"],
        "delta",
    )
    assert found.rows() == [
        ("a", 0, 10 * S, 12),
        ("a", 10 * S, 20 * S, 9),
        ("a", 20 * S, 30 * S, 6),
        ("b", 10 * S, 20 * S, 1),
    ]


# --- on a run -------------------------------------------------------------------------------------


def cells(page: str) -> list[list[str]]:
    return [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>(<td>.*?)</tr>", page)]


def test_a_row_for_each_rate_and_congestion_control(on_off: Path) -> None:
    rows = cells(CrossTraffic(on_off).points_table().data)
    assert [row[:3] for row in rows] == [
        [load, control, asked]
        for control in ("none", "cubic", "reno")
        for load, asked in (("5mbit", "5 Mbit/s"), ("15mbit", "15 Mbit/s"))
    ]
    for load, control, _, alone, beside, lost, on, off, n in rows:
        assert alone == {"5mbit": "5.001 Mbit/s", "15mbit": "15 Mbit/s"}[load]
        assert (beside == "-") == (on == "-") == (off == "-") == (control == "none")
        assert (lost, n) == ("0", "1")


def test_points_that_are_not_valid_do_not_count(on_off: Path, tmp_path: Path) -> None:
    (tmp_path / "points").mkdir()
    for point in (on_off / "points").iterdir():
        (tmp_path / "points" / point.name).symlink_to(point)
    spoilt = tmp_path / "points" / "001"
    spoilt.unlink()
    spoilt.mkdir()
    for path in (on_off / "points" / "001").iterdir():
        (spoilt / path.name).symlink_to(path)
    (spoilt / "verdict.json").unlink()
    verdict = read_json(on_off / "points" / "001" / "verdict.json")
    write_json(spoilt / "verdict.json", verdict | {"state": "invalid"})
    table = CrossTraffic(tmp_path).points_table().data
    assert len(cells(table)) == 5
    assert "1 of 6 points are left out" in table


def test_a_run_of_one_point(on_off: Path) -> None:
    traffic = CrossTraffic(on_off / "points" / "001")
    assert traffic.which().data == ""
    assert len(cells(traffic.points_table().data)) == 1
    rows = cells(traffic.shown.by_period().data)
    assert [row[0] for row in rows] == ["0 to 3 s", "3 to 6 s", "6 to 9 s", "9 to 12 s"]
    assert [row[1] for row in rows] == ["0", "5 Mbit/s", "0", "5 Mbit/s"]
    assert "asked of UDP" in traffic.shown.goodput_beside().data


def test_a_point_can_be_named(on_off: Path) -> None:
    traffic = CrossTraffic(on_off, "006")
    assert traffic.shown.dir.name == "006"
    assert "Of 6 points this is 006" in traffic.which().data
    assert "has no point 007" in CrossTraffic(on_off, "007").which().data


def test_netstat_adds_up(on_off: Path) -> None:
    shown = CrossTraffic(on_off).shown
    rows = {row[0]: row[1:] for row in cells(shown.netstat().data)}
    total = pl.read_parquet(shown.dir / "snmp.parquet").filter(name="TcpRetransSegs")["total"].max()
    assert rows["TcpRetransSegs, sender"][-1] == str(total) != "0"
    assert rows["TcpExtPAWSEstab, receiver"] == ["0"] * 5
    assert rows["dropped by the router"][-1] == str(total)


def test_the_budget_of_what_was_sent_again(on_off: Path) -> None:
    """In this run nothing but the router's queue costs segments."""
    shown = CrossTraffic(on_off).shown
    rows = {row[0]: row[2:] for row in cells(shown.sent_again().data)}
    total = pl.read_parquet(shown.dir / "snmp.parquet").filter(name="TcpRetransSegs")["total"].max()
    assert isinstance(total, int)
    assert shown.budget == analysis.Budget(total, total, 0, 0)
    assert rows["sent again"] == rows["dropped on the way"] == [str(total), "100 %"]
    assert rows["residual"] == ["0", "0"]
    assert "Receivers rejected nothing" in shown.sent_again().data
    assert shown.senders_queue().data == ""


def test_lost_acknowledgments_are_no_part_of_the_budget(on_off: Path, tmp_path: Path) -> None:
    shown = CrossTraffic(on_off).shown
    for path in shown.dir.iterdir():
        (tmp_path / path.name).symlink_to(path)
    qdisc = pl.read_parquet(tmp_path / "qdisc.parquet")
    reverse = (pl.col("dev") == "vec1") & (pl.col("kind") == "pfifo")
    drops = pl.when(reverse).then(pl.int_range(pl.len())).otherwise("drops").cast(qdisc.schema["drops"])
    (tmp_path / "qdisc.parquet").unlink()
    qdisc.with_columns(drops=drops).write_parquet(tmp_path / "qdisc.parquet")
    assert CrossTraffic(tmp_path).shown.budget == shown.budget


def test_captures_show_who_was_overtaken(on_off: Path, tmp_path: Path) -> None:
    point = on_off / "points" / "001"
    for path in point.iterdir():
        if path.name != "raw":
            (tmp_path / path.name).symlink_to(path)
    assert cells(CrossTraffic(tmp_path).shown.overtaken().data) == [
        [f"router {dev}", f"[Errno 2] No such file or directory: &#39;{path}&#39;", "", "", "", ""]
        for dev in ("vec1", "vec2")
        for path in [tmp_path / f"raw/router/measurement/capture-{dev}.pcap"]
    ]
    (folder := tmp_path / "raw/router/measurement").mkdir(parents=True)
    segments = [
        *(Segment(1, "198.18.2.11", 5201, "198.18.1.11", 40000, 9, 2000, options=stamps(1)),),
        *(
            Segment(2, "198.18.1.11", 40000, "198.18.2.11", 5201, seq, 9, 1000, options=stamps(tsval))
            for seq, tsval in ((2000, 22), (4000, 10), (4000, 23))
        ),
    ]
    write(folder / "capture-vec1.pcap", [(s.unix_ns, frame(s)) for s in segments])
    write(folder / "capture-vec2.pcap", [(s.unix_ns, frame(s)) for s in segments[:3]])
    page = CrossTraffic(tmp_path).shown.overtaken().data
    assert cells(page) == [
        ["router vec1", "3", "1", "1", "1", "overtaken"],
        ["router vec2", "2", "0", "1", "0", "not overtaken"],
        ["12", "1"],
    ]
    assert (
        "seq 2000:3000, ack 9, win 229, options [nop,nop,TS val 22 ecr 0], length 1000\n0.000000002 IP"
        in page
    )


def test_what_is_missing_is_said(on_off: Path, collected: Path, tmp_path: Path) -> None:
    without_udp = CrossTraffic(collected)
    assert "none has UDP" in without_udp.points_table().data
    for made in (
        without_udp.shown.by_period(),
        without_udp.shown.goodput_beside(),
        without_udp.shown.netstat(),
    ):
        assert "There is no UDP flow that could come and go. Flows: flow1, flow2." in made.data
    point = on_off / "points" / "001"
    for path in point.iterdir():
        if path.name not in ("snmp.parquet", "qdisc.parquet"):
            (tmp_path / path.name).symlink_to(path)
    assert "no readable snmp.parquet" in CrossTraffic(tmp_path).shown.netstat().data
    (tmp_path / "snmp.parquet").symlink_to(point / "snmp.parquet")
    assert "no readable qdisc.parquet" in CrossTraffic(tmp_path).shown.netstat().data
    nowhere = CrossTraffic(tmp_path / "nowhere")
    assert "nothing to tell of UDP" in nowhere.points_table().data
    assert "no readable plan.json" in nowhere.shown.by_period().data
