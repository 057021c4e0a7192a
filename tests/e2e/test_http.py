"""Fetches over HTTP in the virtual lab, both ways over a path that loses packets in one of them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from captures import Packet, packets
from lab import Lab
from runs import MS, Finished, S, run_in_time

from dumbbell import analysis

pytestmark = pytest.mark.e2e

SCENARIO = Path(__file__).with_name("fetches.yml")
RTT_NS = 19.6 * MS  # of 20 ms, to the tolerance of a path


def forward(packet: Packet) -> bool:
    return packet.src.startswith("198.18.1.")


@pytest.fixture(scope="module")
def finished(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run_in_time(SCENARIO, tmp_path_factory.mktemp("fetches"))


@pytest.fixture(scope="module")
def fetched(finished: Finished) -> pl.DataFrame:
    return analysis.fetches(finished.table("http_fetch"))


def test_the_run_passes(finished: Finished) -> None:
    verdict = finished.json("verdict.json")
    assert (verdict["state"], verdict["reasons"]) == ("passed", []), finished.output[-4000:]
    assert finished.facts("fetches")["web"] == 20
    assert finished.facts("congestion control") == {"web": "reno", "kept": "cubic"}
    assert finished.facts("connections") == {"web": 20, "kept": 1}


def test_every_fetch_is_told_of_by_both_ends(finished: Finished, lab: Lab) -> None:
    rows = finished.table("http_fetch")
    for flow, client, host in (("web", "receiver1", "sender1"), ("kept", "sender2", "receiver2")):
        begun = finished.json(f"raw/{client}/measurement/http-{flow}-receiver.json")["begun"]
        for side, where in (("receiver", client), ("sender", host)):
            own = rows.filter(flow=flow, side=side)
            assert own["host"].unique().to_list() == [where]
            assert sorted(own["fetch"]) == list(range(1, begun + 1))
    stored = finished.json("manifest.json")["rows"]["influxdb"]["http_fetch"]["stored"]
    assert stored == rows.height
    with lab.influx() as influx:
        assert influx.counts(["http_fetch"], finished.id) == {"http_fetch": rows.height}


def test_no_fetch_is_quicker_than_the_path(fetched: pl.DataFrame) -> None:
    web, kept = fetched.filter(flow="web"), fetched.filter("done", flow="kept")
    assert all(ns >= RTT_NS for ns in web["connect_ns"])
    assert all(ns >= RTT_NS for ns in web["first_byte_ns"] - web["connect_ns"])
    # 76 800 bytes at 20 Mbit/s are 30 ms.
    assert all(ns >= 2 * RTT_NS + 30 * MS for ns in web["completion_ns"])
    assert kept["connect_ns"].count() == 1
    assert all(ns >= RTT_NS for ns in kept["completion_ns"])


def test_lost_segments_are_counted_where_they_were_sent_again(
    finished: Finished, fetched: pl.DataFrame
) -> None:
    """Of some 1100 segments 3 % are lost: that none is has a probability of 10^-14."""
    web, kept = fetched.filter(flow="web"), fetched.filter(flow="kept")
    # Where a SYN-ACK was lost it counts as retransmitted too, perhaps twice, but not as a segment with data.
    at_once = web.filter(pl.col("connect_ns") < S)
    assert all(segments >= 76_800 / 1460 for segments in at_once["segments"] - at_once["retransmits"])
    for flow, host in ((web, "sender1"), (kept, "receiver2")):
        counted = finished.table("snmp").filter(phase="measurement", host=host, name="TcpRetransSegs")
        assert int(flow["retransmits"].sum()) <= int(counted["delta"].sum())
    assert int(web["retransmits"].sum()) > 0


def test_captures_have_every_packet_on_both_sides_of_the_bottleneck(
    finished: Finished, fetched: pl.DataFrame
) -> None:
    assert finished.facts("packets not captured") == {"router vec1": 0, "router vec2": 0}
    before, behind = (
        [
            packet
            for packet in packets(finished.dir / f"raw/router/measurement/capture-{device}.pcap")
            if forward(packet)
        ]
        for device in ("vec1", "vec2")
    )
    sent = fetched.filter(flow="web")["segments"].sum()
    assert sum(packet.src == "198.18.1.11" and packet.payload > 0 for packet in before) == sent
    queues = {"ifb_fwd": "pfifo", "vec2": "netem"}
    rows = finished.table("qdisc").filter(phase="measurement")
    drops = rows.filter(pl.col("dev").replace_strict(queues, default=None) == pl.col("kind"))
    counted = (
        drops.group_by("dev", "handle").agg(pl.col("drops").max() - pl.col("drops").min())["drops"].sum()
    )
    # The router's own questions for addresses (ARP) go this way too, and 3 % of those few are lost.
    assert 0 <= counted - (len(before) - len(behind)) <= 2
    assert counted > 2


def test_open_connections_are_sampled(finished: Finished, fetched: pl.DataFrame) -> None:
    """One that persists is there for all of its 10 s once it is up: its SYN may be lost, for a second."""
    (connect_ns,) = fetched.filter(flow="kept")["connect_ns"].drop_nulls()
    for side, host in (("sender", "receiver2"), ("receiver", "sender2")):
        rows = finished.tcp_info.filter(flow="kept", side=side)
        missed = finished.event("sampler", host=host, phase="measurement")["missed"]
        assert (rows.height + missed) * 100 * MS >= 9.5 * S - connect_ns
        assert rows["cookie"].n_unique() == 1
        assert rows["stream"].null_count() == rows.height


def test_the_report_has_a_table_of_fetches(finished: Finished) -> None:
    page = (finished.dir / "report.html").read_text()
    assert "<h2>Fetches</h2>" in page
    assert "20 of 20" in page
