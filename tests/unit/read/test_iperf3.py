"""Reports of iperf3, of several versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dumbbell.read.directory import told
from read.files import made, refused
from read.mutate import FILES

CLIENTS = sorted(path.name for path in FILES.glob("iperf3-*-client.json"))
STREAMS = sorted(path.name for path in FILES.glob("iperf3-*-stream.jsonl"))


def document(name: str) -> Any:
    return json.loads((FILES / name).read_bytes())


@pytest.mark.parametrize("name", CLIENTS)
def test_client_of_every_version(name: str, tmp_path: Path) -> None:
    report = document(name)
    _, flows = made(tmp_path, name)
    (flow,) = flows.rows(named=True)
    assert flow["streams"] == 2
    assert flow["congestion_control"] == report["end"]["sender_tcp_congestion"]
    assert flow["retransmitted_segments"] == report["end"]["sum_sent"]["retransmits"]
    # The server reported what arrived; the last interval ends a little after the two seconds.
    seconds = flow["duration_ns"] / 1e9
    arrived = report["end"]["sum_received"]["bytes"]
    assert flow["goodput_bps"] == pytest.approx(8 * arrived / seconds, rel=0.02)
    assert flow["limit_unknown"] is None
    assert flow["retransmits"] is None, "iperf3 does not tell how many segments it sent"


@pytest.mark.parametrize("name", CLIENTS)
def test_samples_of_a_client(name: str, tmp_path: Path) -> None:
    report = document(name)
    found = told(FILES / name, tmp_path)
    rows = found.table("tcp_info").collect()
    told_of = [stream for interval in report["intervals"] for stream in interval["streams"]]
    assert rows["srtt_us"].to_list() == [stream["rtt"] for stream in told_of]
    mss = report["start"]["tcp_mss_default"]
    assert (rows["snd_cwnd"] * mss).to_list() == [stream["snd_cwnd"] for stream in told_of]
    assert rows["snd_wnd"].to_list() == [stream.get("snd_wnd") for stream in told_of]
    assert found.tool == report["start"]["version"]


@pytest.mark.parametrize("name", STREAMS)
def test_stream_of_events_tells_the_same(name: str, tmp_path: Path) -> None:
    events = [json.loads(line) for line in (FILES / name).read_text().splitlines()]
    (end,) = [event["data"] for event in events if event["event"] == "end"]
    _, flows = made(tmp_path, name)
    (flow,) = flows.rows(named=True)
    total = flow["goodput_bps"] * flow["duration_ns"] / 8e9
    assert total == pytest.approx(end["sum_received"]["bytes"], rel=0.02)


def test_full_output_after_the_events_counts_once(tmp_path: Path) -> None:
    content = (FILES / "iperf3-3.22-full-output.jsonl").read_bytes()
    events = content[: content.index(b"\n{\n") + 1]
    (path := tmp_path / "events").write_bytes(events)
    once, twice = (
        told(each, tmp_path).table("tcp_info").collect()
        for each in (path, FILES / "iperf3-3.22-full-output.jsonl")
    )
    assert once.height > 0
    assert twice.equals(once)


def test_both_directions_are_two_flows(tmp_path: Path) -> None:
    (name,) = [path.name for path in FILES.glob("iperf3-*-bidir.json")]
    _, flows = made(tmp_path, name)
    assert set(flows["src"]) == set(flows["dst"]) == {"192.0.2.1", "192.0.2.2"}
    assert sorted(flows["direction"]) == ["forward", "reverse"]


def test_reverse_test_sends_from_the_server(tmp_path: Path) -> None:
    (name,) = [path.name for path in FILES.glob("iperf3-*-reverse.json")]
    _, flows = made(tmp_path, name)
    (flow,) = flows.rows(named=True)
    assert (flow["src"], flow["dst"]) == ("192.0.2.2", "192.0.2.1")
    total = flow["goodput_bps"] * flow["duration_ns"] / 8e9
    assert total == pytest.approx(document(name)["end"]["sum_received"]["bytes"], rel=0.02)


def test_servers_part_says_what_arrived_when(tmp_path: Path) -> None:
    (name,) = [path.name for path in FILES.glob("iperf3-*-both.json")]
    report = document(name)
    found = told(FILES / name, tmp_path)
    receiver = next(end for end in found.ends.values() if end.sends is False)
    arrived = found.table("intervals").collect().filter(number=receiver.number)
    intervals = report["server_output_json"]["intervals"]
    assert arrived["bytes"].to_list() == [interval["sum"]["bytes"] for interval in intervals]


def test_datagrams_that_were_lost(tmp_path: Path) -> None:
    (name,) = [path.name for path in FILES.glob("iperf3-*-udp.json")]
    _, flows = made(tmp_path, name)
    (flow,) = flows.rows(named=True)
    assert flow["kind"] == "read_udp"
    assert flow["lost_packets"] == document(name)["end"]["sum"]["lost_packets"] > 0
    assert flow["loss"] == pytest.approx(document(name)["end"]["sum"]["lost_percent"] / 100, rel=0.01)


def test_server_writes_one_report_after_the_other(tmp_path: Path) -> None:
    (name,) = [path.name for path in FILES.glob("iperf3-*-server.json")]
    _, flows = made(tmp_path, name)
    assert flows.height > 3
    assert flows.filter(kind="read_tcp")["goodput_bps"].null_count() == 0


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.glob("iperf3-*-refused.json*")))
def test_refused_connection_is_no_test(name: str, tmp_path: Path) -> None:
    message = refused((FILES / name).read_bytes(), tmp_path)
    assert "no test in it has an interval; error that iperf3 reported: " in message
    assert "Connection refused" in message


def test_what_is_wrong_is_told_with_its_place(tmp_path: Path) -> None:
    content = (FILES / CLIENTS[0]).read_bytes()
    assert refused(content[:1000], tmp_path).startswith("byte ")
    assert "the report is cut off, or no JSON" in refused(content[:1000], tmp_path)
    lines = (FILES / STREAMS[0]).read_bytes().splitlines(keepends=True)
    cut = b"".join([*lines[:2], lines[2][:40] + b"\n", *lines[3:]])
    assert refused(cut, tmp_path).startswith("line 3: the line is cut off, or no JSON.")
    assert refused(b"".join(lines[1:]), tmp_path).startswith("line 1: there is no start before it.")
