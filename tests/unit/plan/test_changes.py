from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbbell.plan.resolve import resolve_path
from dumbbell.scenario import NetworkPath, ScenarioError
from dumbbell.scenario.path import OUTAGE_NS
from plan.plans import TCP, WAY, S, changing, only, planned, scenario


def test_a_change_keeps_what_it_does_not_name(tmp_path: Path) -> None:
    point = changing(
        tmp_path,
        {"at": "2s", "rate": "50mbit"},
        {"at": "4s", "delay": "30ms", "jitter": "2ms", "loss": "1%"},
        {"at": "6s", "jitter": "0ms", "loss_gemodel": {"p": "1%", "r": "10%"}},
        {"at": "8s", "loss": "0%", "queue": {"kind": "pfifo", "limit": "2bdp"}},
        forward=WAY | {"distribution": "normal"},  # of the jitter to come
    )
    assert point.path is not None
    changes = json.loads(point.path.model_dump_json())["forward"]["changes"]
    # 100 Mbit/s x 20 ms = 166 packets, which stay until the queue is named; then 2 x 50 Mbit/s x 40 ms.
    first = {
        "rate_bps": 50_000_000,
        "distribution": "normal",
        "queue": {"kind": "pfifo", "limit_packets": 166},
    }
    later = first | {"delay_us": 30_000}
    bursts = {"p": 0.01, "r": 0.1, "loss_bad": 1.0, "loss_good": 0.0}
    assert changes == [
        first | {"at_ns": 2 * S, "delay_us": 10_000, "loss": 0.0},
        later | {"at_ns": 4 * S, "loss": 0.01, "jitter_us": 2000},
        later | {"at_ns": 6 * S, "loss": 0.0, "jitter_us": 0, "loss_gemodel": bursts},
        later
        | {"at_ns": 8 * S, "loss": 0.0, "jitter_us": 0, "queue": {"kind": "pfifo", "limit_packets": 331}},
    ]
    # The calibration meets the path as it is at first.
    assert (point.path.rtt_ns, point.path.jitters, point.path.forward.rate_bps) == (20_000_000, False, 10**8)
    assert point.phase("calibration").flows[0].rate_bps == planned().phase("calibration").flows[0].rate_bps


def test_an_outage_is_closed_for_as_long_as_a_packet_takes(tmp_path: Path) -> None:
    point = changing(
        tmp_path,
        {"at": "2s", "rate": "0bit"},
        {"at": "3s", "loss": "1%"},
        {"at": "5s", "rate": "50mbit"},
        {"at": "7s", "rate": "0mbit"},
        {"at": "7.1s", "rate": "100mbit"},
        forward=WAY | {"burst": "1MB"},
    )
    assert point.path is not None
    way = point.path.forward
    assert way.outages == [(2 * S, 3 * S), (7 * S, S // 10)]
    states = [state for _, state in way.states]
    assert [state.rate_bps for state in states] == [10**8, 0, 0, 5 * 10**7, 0, 10**8]
    for state, lasts_s in ((states[1], 3), (states[2], 3), (states[4], 0.1)):
        assert state.outage is not None
        closed_s = 8 * state.outage.packet_bytes / state.outage.rate_bps
        assert state.outage.packet_bytes < 2**16
        assert closed_s == pytest.approx(lasts_s, abs=1e-4)
        assert state.capacity_bps == state.fullest_ns(1514) == 0
    assert all(state.outage is None for state in (states[0], states[3], states[5]))
    # What ends it is made ahead: the kernel ends it in time.
    made = [action.at_ns for action in point.phase("measurement").hosts["router"].actions]
    assert made == [2 * S, 3 * S, 5 * S - 20_000_000, 7 * S, 7_100_000_000 - 20_000_000]
    # 2 s of 100, 3 of nothing, 2 of 50, 0.1 of nothing, 2.9 of 100 Mbit/s
    assert way.mean_rate_bps(0, 10 * S) == pytest.approx((2 * 100e6 + 2 * 50e6 + 2.9 * 100e6) / 10)


@given(lasts_ns=st.integers(OUTAGE_NS[0] // 1000, OUTAGE_NS[1] // 1000).map(lambda us: 1000 * us))
def test_an_outage_of_any_length_is_exact_to_a_millisecond(lasts_ns: int) -> None:
    changes = [{"at": "1s", "rate": "0bit"}, {"at": f"{S + lasts_ns}ns", "rate": "1mbit"}]
    path = NetworkPath.model_validate({"forward": WAY | {"changes": changes}})
    way = resolve_path(path, lambda key, reason: pytest.fail(f"{key}: {reason}")).forward
    closed = way.states[1][1].outage
    assert closed is not None
    assert closed.packet_bytes < 2**16
    assert 8e9 * closed.packet_bytes / closed.rate_bps == pytest.approx(lasts_ns, abs=1e6)


def test_the_routers_make_the_changes_while_it_is_measured(tmp_path: Path) -> None:
    one, two = {"at": "2s", "rate": "50mbit"}, {"at": "4s", "delay": "30ms"}
    point = changing(tmp_path, one, two, reverse=WAY | {"changes": [one]})
    assert [action.model_dump() for action in point.phase("measurement").hosts["router"].actions] == [
        {"at_ns": 2 * S, "kind": "path", "name": "forward-1"},
        {"at_ns": 2 * S, "kind": "path", "name": "reverse-1"},
        {"at_ns": 4 * S, "kind": "path", "name": "forward-2"},
    ]
    assert point.phase("calibration").hosts["router"].actions == []
    assert point.id != changing(tmp_path, one, reverse=WAY | {"changes": [one]}).id


def test_the_path_is_restored_when_the_last_packets_of_the_flows_have_passed(tmp_path: Path) -> None:
    def restored_ns(change: dict[str, Any], **flow: Any) -> int | None:
        path = {"forward": WAY | {"changes": [{"at": "2s"} | change]}, "reverse": WAY}
        point = only(tmp_path, scenario({"flow": TCP | flow}, path=path, cool_down="1s"))
        return point.phase("measurement").hosts["router"].restore_ns

    # 10 RTTs, each with 166 packets of 1514 bytes before it in both queues, after the phase of 11 s.
    at_100mbit = 11 * S + 10 * (300_000_000 + 2 * 166 * 1514 * 8 * 10)
    assert restored_ns({"delay": "290ms"}) == at_100mbit
    assert restored_ns({"delay": "290ms"}, delay="10ms") == at_100mbit + 100_000_000
    assert restored_ns({"delay": "10ms"}) == 14 * S  # at the least, for what is lost several times
    assert restored_ns({"delay": "3s"}) == 20 * S  # before hosts end what has not ended
    constant = only(tmp_path, scenario({"flow": TCP}, path={"forward": WAY}))
    assert "restore_ns" not in constant.phase("measurement").hosts["router"].model_dump()


def connects(tmp_path: Path, *changes: Any, **flow: Any) -> float | None:
    """When a flow connects at the earliest, in s, over a path of 20 ms that changes."""
    path = {"forward": WAY | {"changes": list(changes)}, "reverse": WAY}
    text = scenario({"flow": TCP | {"start": "12s", "duration": "3s"} | flow}, path=path, duration="20s")
    (planned,) = only(tmp_path, text).phase("measurement").flows
    return None if planned.connect_ns is None else planned.connect_ns / S


LONGER = {"delay": "190ms"}  # 200 ms there and back
ATOU = {"kind": "atou"}
UDP = {"kind": "iperf3_udp", "rate": "1mbit"}


@pytest.mark.parametrize(
    ("changes", "flow", "at"),
    [
        ([], {}, None),
        ([{"at": "11s"} | LONGER], {}, 11.05),  # once the change has been made, which may be late by 50 ms
        ([{"at": "11s"} | LONGER], ATOU, 11.05),
        ([{"at": "11.45s"} | LONGER], {}, 11.5),  # two round trips of 200 ms, and 100 ms for the hosts
        ([{"at": "3s"} | LONGER], {}, None),  # long before
        ([{"at": "13s"} | LONGER], {}, None),  # later
        ([{"at": "11s", "rate": "50mbit"}], {}, None),  # the delay stays
        ([{"at": "9s"} | LONGER, {"at": "11s", "rate": "50mbit"}], {}, 9.05),
        ([{"at": "9s"} | LONGER, {"at": "11s", "delay": "10ms"}], {}, 11.05),
        ([{"at": "11s", "jitter": "1ms"}], {}, 11.05),
        # The datagram with which iperf3 begins over UDP: half a second and what it needs before the start.
        ([], UDP, 11.36),
        ([{"at": "11s"} | LONGER], UDP, 11.0),
        ([{"at": "12s"} | LONGER], {"kind": "udp", "rate": "1mbit"}, None),  # needs no connection
        ([{"at": "12s"} | LONGER], {"kind": "http", "size": "1kB"}, None),  # makes it at its start
    ],
)
def test_a_flow_connects_over_the_path_of_its_start(
    tmp_path: Path, changes: list[Any], flow: dict[str, Any], at: float | None
) -> None:
    assert connects(tmp_path, *changes, **flow) == at


@pytest.mark.parametrize(
    ("change", "flow", "needs", "first"),
    [
        ("12s", {}, "550ms", "12550ms"),
        ("11.46s", {}, "550ms", "12010ms"),
        ("11.9s", {"streams": 3}, "950ms", "12850ms"),
        ("12s", ATOU, "550ms", "12550ms"),
        ("12s", {"delay": "30ms"}, "610ms", "12610ms"),
    ],
)
def test_a_flow_that_could_not_connect_over_the_path_of_its_start_is_refused(
    tmp_path: Path, change: str, flow: dict[str, Any], needs: str, first: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        connects(tmp_path, {"at": change} | LONGER, **flow)
    (problem,) = caught.value.problems
    assert problem.key == "flows.flow.start"
    assert problem.reason.endswith(f" and needs {needs} after that: start it at {first} or later")


def test_the_way_back_changes_as_the_way_there_unless_it_is_given(tmp_path: Path) -> None:
    change = {"at": "2s", "delay": "30ms", "queue": {"kind": "pfifo", "limit": "1bdp"}}
    for reverse, rtt_ms in ((None, 60), (WAY, 40)):
        path = changing(tmp_path, change, reverse=reverse).path
        assert path is not None
        limit = -(
            -(10**8) * rtt_ms // (8 * 1000 * 1514)
        )  # of packets, rounded up: rate x RTT after the change
        assert path.forward.at(2 * S).queue.limit_packets == limit
        assert [at for at, _, _ in path.states] == [0, 2 * S]
        assert [there.delay_us + back.delay_us for _, there, back in path.states] == [20_000, 1000 * rtt_ms]
