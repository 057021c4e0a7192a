"""What is allowed and likely not meant is told, with a number, unless it is acknowledged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from synthetic import REPOSITORY, inventory

from dumbbell.plan import Plan, describe, plan
from dumbbell.scenario import ScenarioError
from dumbbell.scenario.acknowledge import WarningId
from dumbbell.units import human
from plan.plans import SCENARIOS, TCP, WAY, scenario

UDP = {"kind": "udp", "from": "senders[0]", "to": "receivers[0]", "datagram": "1458B"}


def planned(tmp_path: Path, flow: Any = TCP, way: Any = WAY, **more: Any) -> Plan:
    (tmp_path / "x.yml").write_text(scenario({"flow": flow}, path={"forward": way}, **more))
    return plan(tmp_path / "x.yml", inventory())


def told(tmp_path: Path, **asked: Any) -> dict[str, str]:
    """The first text of each warning."""
    found: dict[str, str] = {}
    for warned in planned(tmp_path, **asked).warnings:
        found.setdefault(warned.id, warned.text)
    return found


def test_nothing_is_said_of_what_is_meant(tmp_path: Path) -> None:
    assert told(tmp_path) == {}


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ("41packets", "has room for 0.248 BDP"),  # 166 packets are a BDP
        ("42packets", None),
        ("1322packets", None),  # eight, rounded up
        ("1323packets", "holds a packet for 160.2 ms at the most, at an RTT of 20 ms"),
    ],
)
def test_a_queue_is_near_the_bdp(tmp_path: Path, limit: str, text: str | None) -> None:
    found = told(tmp_path, way=WAY | {"queue": {"kind": "pfifo", "limit": limit}})
    assert found.keys() == ({"queue_far_from_bdp"} if text else set())
    assert (text or "") in found.get("queue_far_from_bdp", "")


def test_an_aqm_may_have_a_long_queue(tmp_path: Path) -> None:
    assert told(tmp_path, way=WAY | {"queue": {"kind": "codel", "limit": "10000packets"}}) == {}


@pytest.mark.parametrize(("rate", "sent"), [("0.5mbit", None), ("1.1mbit", 275_000), ("200mbit", 50_000_000)])
def test_what_is_sent_into_an_outage_and_the_queue_has_no_room_for(
    tmp_path: Path, rate: str, sent: int | None
) -> None:
    way = WAY | {"changes": [{"at": "2s", "rate": "0bit"}, {"at": "4s", "rate": "100mbit"}]}
    found = told(tmp_path, flow=UDP | {"rate": rate}, way=way)
    assert ("outage_overflows" in found) == bool(sent)
    assert ("udp_above_rate" in found) == (rate == "200mbit")
    if sent:
        said = f"flow flow: in the outage of path.forward from 2 s it sends {human(sent)} bytes"
        assert found["outage_overflows"].startswith(said)


def test_nothing_is_said_of_an_outage_of_tcp(tmp_path: Path) -> None:
    changes = [{"at": "2s", "rate": "0bit"}, {"at": "4s", "rate": "100mbit"}]
    assert told(tmp_path, way=WAY | {"changes": changes}) == {}


def test_a_queue_is_compared_with_the_path_of_its_time(tmp_path: Path) -> None:
    found = told(tmp_path, way=WAY | {"changes": [{"at": "5s", "rate": "5mbit"}]})
    assert found["queue_far_from_bdp"].startswith("path.forward from 5 s: its queue has room for 20.1 BDP")


def test_jitter_that_reorders(tmp_path: Path) -> None:
    found = told(tmp_path, way=WAY | {"jitter": "200us"})
    assert "within 121.1 µs at the full rate, and a jitter of 200 µs" in found["jitter_reorders"]
    assert told(tmp_path, way=WAY | {"jitter": "100us"}) == {}
    assert told(tmp_path, way=WAY | {"jitter": "1ms", "keep_order": True}).keys() == {"order_kept"}


@pytest.mark.parametrize(
    ("flow", "hosts", "text"),
    [
        ({"socket_buffer": "249kB"}, {}, "socket_buffer gives its streams 249"),
        ({"socket_buffer": "250kB"}, {}, None),
        ({"socket_buffer": "125kB", "streams": 2}, {}, None),
        ({"socket_buffer": "250kB", "delay": "1ms"}, {}, "at an RTT of 21 ms"),
        ({"socket_buffer": "25kB", "rate": "10mbit"}, {}, None),
        ({}, {"receivers": {"sysctls": {"net.ipv4.tcp_rmem": "4096 65536 65536"}}}, "tcp_rmem of receiver1"),
        ({}, {"receivers": {"sysctls": {"net.ipv4.tcp_rmem": "4096 65536 6291456"}}}, None),
        ({}, {"senders": {"sysctls": {"net.ipv4.tcp_wmem": "4096 65536 65536"}}}, "allows 26.21 Mbit/s"),
        ({}, {"senders": {"sysctls": {"net.ipv4.tcp_rmem": "4096 65536 65536"}}}, None),
    ],
)
def test_buffers_hold_the_bdp(tmp_path: Path, flow: Any, hosts: Any, text: str | None) -> None:
    found = told(tmp_path, flow=TCP | flow, hosts=hosts)
    assert found.keys() == ({"buffer_below_bdp"} if text else set())
    assert (text or "") in found.get("buffer_below_bdp", "")


@pytest.mark.parametrize(
    ("burst", "text"),
    [
        ("187499B", "burst of 187\u202f499 bytes holds 100 ms of its rate"),
        ("10kB", "a tenth of a second's rate is 187\u202f500 bytes"),
        ("187500B", None),
    ],
)
def test_a_policer_holds_a_tenth_of_a_second(tmp_path: Path, burst: str, text: str | None) -> None:
    found = told(tmp_path, way=WAY | {"policer": {"rate": "15mbit", "burst": burst}})
    assert found.keys() == ({"policer_burst"} if text else set())
    assert (text or "") in found.get("policer_burst", "")


def test_udp_is_compared_with_a_policers_rate(tmp_path: Path) -> None:
    way = WAY | {"policer": {"rate": "15mbit", "burst": "1MB"}}
    assert "the path's 15 Mbit/s" in told(tmp_path, flow=UDP | {"rate": "20mbit"}, way=way)["udp_above_rate"]


def test_a_burst_of_the_bottleneck_fits_its_queue(tmp_path: Path) -> None:
    assert told(tmp_path, way=WAY | {"burst": "251kB"}) == {}  # 166 packets are 251 324 bytes
    assert "burst_above_queue" in told(tmp_path, way=WAY | {"burst": "252kB"})


@pytest.mark.parametrize("option", ["send_buffer", "receive_buffer"])
def test_a_buffer_of_one_end_holds_the_bdp(tmp_path: Path, option: str) -> None:
    flow = TCP | {"kind": "tcp"}
    assert f"{option} gives its streams" in told(tmp_path, flow=flow | {option: "249kB"})["buffer_below_bdp"]
    assert told(tmp_path, flow=flow | {option: "250kB"}) == {}


def test_udp_above_the_rate_counts_headers(tmp_path: Path) -> None:
    assert told(tmp_path, flow=UDP | {"rate": "97.2mbit"}) == {}
    found = told(tmp_path, flow=UDP | {"rate": "145.8mbit"})  # 150 with headers
    assert "150 Mbit/s with headers" in found["udp_above_rate"]
    assert "loses 33.3 %" in found["udp_above_rate"]
    late = {"changes": [{"at": "5s", "rate": "50mbit"}]}
    assert (
        "the path's 50 Mbit/s"
        in told(tmp_path, flow=UDP | {"rate": "60mbit"}, way=WAY | late)["udp_above_rate"]
    )
    before = UDP | {"rate": "60mbit", "duration": "5s"}
    assert "udp_above_rate" not in told(tmp_path, flow=before, way=WAY | late)


def test_samples_are_near_the_rtt(tmp_path: Path) -> None:
    assert told(tmp_path, sampling={"interval": "200ms"}) == {}
    assert "10.1 RTTs of 20 ms" in told(tmp_path, sampling={"interval": "201ms"})["sampling_slow"]


@pytest.mark.parametrize(("times", "warned"), [(1, False), (3, True), (4, False)])
def test_repetitions_that_can_show_a_difference(tmp_path: Path, times: int, warned: bool) -> None:
    more: dict[str, Any] = {"repetitions": times, "matrix": {"cc": ["cubic", "reno"]}}
    found = told(tmp_path, flow=TCP | {"congestion_control": "$cc"}, **more)
    assert ("few_repetitions" in found) == warned
    if warned:
        assert "p is at least 0.1; with 4 it can be below 0.05" in found["few_repetitions"]


def test_what_is_acknowledged_is_shown_with_its_reason(tmp_path: Path) -> None:
    way = WAY | {"queue": {"kind": "pfifo", "limit": "10packets"}}
    meant = planned(tmp_path, way=way, acknowledge={"queue_far_from_bdp": "short on purpose"})
    assert meant.warnings
    assert meant.unacknowledged == []
    assert "(acknowledged: short on purpose)" in describe(meant)
    assert Plan.model_validate_json(meant.to_json()) == meant
    other = planned(tmp_path, way=way, acknowledge={"jitter_reorders": "it does"})
    assert other.unacknowledged == other.warnings
    assert {point.id for point in other.points} == {point.id for point in meant.points}


@pytest.mark.parametrize("acknowledged", [{"queue": "why"}, {"no_data": ""}, {"no_data": "  "}])
def test_an_acknowledgement_names_a_warning_and_a_reason(
    tmp_path: Path, acknowledged: dict[str, str]
) -> None:
    with pytest.raises(ScenarioError):
        planned(tmp_path, acknowledge=acknowledged)


def test_each_warning_is_explained() -> None:
    page = (REPOSITORY / "docs/warnings.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(get_args(WarningId))


@pytest.mark.parametrize("path", sorted(SCENARIOS.rglob("*.yml")), ids=lambda path: path.stem)
def test_warnings_of_shipped_scenarios_are_meant(path: Path) -> None:
    for profile in (None, "hardware") if "\n  hardware:" in path.read_text() else (None,):
        assert plan(path, inventory(), profile).unacknowledged == []
