from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import REPOSITORY, inventory

from dumbbell.plan import PingAction, Plan, Sample, plan

SCENARIO = REPOSITORY / "scenarios" / "two_flow_fairness.yml"


def planned() -> Plan:
    return plan(SCENARIO, inventory())


def test_same_input_same_bytes() -> None:
    first = planned().to_json()
    assert first == planned().to_json()
    assert Plan.model_validate_json(first).to_json() == first


def test_the_point_is_the_configuration(tmp_path: Path) -> None:
    text = SCENARIO.read_text()
    (tmp_path / "title.yml").write_text(text.replace("title: Two", "title: 2"))
    (tmp_path / "seed.yml").write_text(text.replace("seed: 1", "seed: 2"))
    assert plan(tmp_path / "title.yml", inventory()).point == planned().point
    assert plan(tmp_path / "seed.yml", inventory()).point != planned().point


def test_path_is_resolved() -> None:
    path = planned().path
    assert path is not None
    # 100 Mbit/s x 20 ms = 250 000 bytes = 165.1 packets of 1514 bytes
    assert (path.rtt_ns, path.forward.queue.limit_packets) == (20_000_000, 166)
    assert json.loads(planned().to_json())["path"]["forward"]["queue"] == {
        "kind": "pfifo",
        "limit_packets": 166,
    }


def test_measurement_is_that_of_the_data_model() -> None:
    phase = json.loads(planned().to_json())["phases"][1]
    assert phase["flows"][0] == {
        "name": "flow1", "kind": "iperf3_tcp", "src_host": "sender1", "dst_host": "receiver1",
        "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5201, "client_port": 40001, "streams": 1,
        "start_ns": 0, "duration_ns": 30_000_000_000, "congestion_control": "cubic", "rate_bps": None,
    }  # fmt: skip
    assert phase["hosts"]["sender1"] == {
        "actions": [{"at_ns": 0, "kind": "iperf3_client", "flow": "flow1"}],
        "sample": {"tcp": ["flow1"], "qdisc": False},
    }
    assert phase["hosts"]["receiver1"]["actions"][0]["at_ns"] == -5_000_000_000
    assert phase["hosts"]["router"] == {"actions": [], "sample": {"tcp": [], "qdisc": True}}


def test_calibration_pings_one_pair_after_the_other_then_fills_the_path() -> None:
    phase = planned().phase("calibration")
    pings = [a for h in phase.hosts.values() for a in h.actions if isinstance(a, PingAction)]
    pings.sort(key=lambda ping: ping.at_ns)
    assert [ping.name for ping in pings] == ["sender1-receiver1", "sender2-receiver2"]
    assert all(ping.count == 21 for ping in pings)
    (load,) = phase.flows
    assert load.model_dump() == {
        "name": "calibration_rate", "kind": "iperf3_tcp", "src_host": "sender1", "dst_host": "receiver1",
        "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5201, "client_port": 40001, "streams": 4,
        "start_ns": load.start_ns, "duration_ns": 5_000_000_000, "congestion_control": "reno",
        "rate_bps": None,
    }  # fmt: skip
    times = [(ping.at_ns, ping.at_ns + ping.count * ping.interval_ns) for ping in pings]
    times.append((load.start_ns, load.end_ns))
    assert all(end < start for (_, end), (start, _) in pairwise(times))
    assert load.end_ns < phase.duration_ns
    assert {host: part.sample.tcp for host, part in phase.hosts.items()} == {
        "sender1": ["calibration_rate"], "receiver1": ["calibration_rate"], "sender2": [],
    }  # fmt: skip


def test_without_a_path_its_rate_is_not_measured(tmp_path: Path) -> None:
    text = SCENARIO.read_text()
    (tmp_path / "x.yml").write_text(text[: text.index("path:")] + text[text.index("hosts:") :])
    without = plan(tmp_path / "x.yml", inventory())
    assert without.path is None
    calibration = without.phase("calibration")
    assert calibration.flows == []
    assert all(part.sample == Sample() for part in calibration.hosts.values())


def test_the_host_has_the_last_word_on_its_state(tmp_path: Path) -> None:
    special = "hosts:\n  sender1: {txqueuelen: 50, offloads: {tso: true}}\n  senders: {txqueuelen: 70}\n"
    (tmp_path / "x.yml").write_text(SCENARIO.read_text().replace("hosts:\n", special))
    states = {host: detail.state for host, detail in plan(tmp_path / "x.yml", inventory()).hosts.items()}
    assert {host: state.txqueuelen for host, state in states.items()} == {
        "sender1": 50, "sender2": 70, "receiver1": 1000, "receiver2": 1000, "router": 1000,
    }  # fmt: skip
    assert states["sender1"].offloads == {"tso": True, "gso": False, "gro": False}
    assert states["router"].congestion_controls == []


def test_hosts_that_take_no_part_are_brought_to_their_state_and_then_left_alone() -> None:
    larger = plan(SCENARIO, inventory(senders=3))
    assert larger.hosts["sender3"].state.offloads == {"tso": False, "gso": False, "gro": False}
    parts = {phase.phase: set(phase.hosts) for phase in larger.phases}
    assert parts == {
        "calibration": {"sender1", "sender2", "receiver1"},
        "measurement": {"sender1", "sender2", "receiver1", "receiver2", "router"},
    }


def test_hosts_without_an_experiment_interface_are_no_part_of_the_plan() -> None:
    assert sorted(planned().hosts) == ["receiver1", "receiver2", "router", "sender1", "sender2"]
    assert b"archive" not in planned().to_json()


flow = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["iperf3_tcp", "iperf3_udp"]),
        "from": st.integers(0, 3).map("senders[{}]".format),
        "to": st.integers(0, 3).map("receivers[{}]".format),
        "start": st.integers(0, 5).map("{}s".format),
        "duration": st.integers(1, 5).map("{}s".format),
        "streams": st.integers(1, 16),
    }
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(flows=st.lists(flow, min_size=1, max_size=12))
def test_no_two_connections_share_a_tuple_or_a_port(tmp_path: Path, flows: Sequence[dict[str, Any]]) -> None:
    listed = [
        f | {"name": f"f{i}"} | ({"rate": "1mbit"} if f["kind"] == "iperf3_udp" else {})
        for i, f in enumerate(flows)
    ]
    # JSON is YAML.
    scenario = {"name": "x", "title": "x", "duration": "10s", "flows": listed}
    (tmp_path / "x.yml").write_text(json.dumps(scenario))
    resolved = plan(tmp_path / "x.yml", inventory(4, 4))
    for phase in resolved.phases:
        servers = [(f.dst, f.server_port) for f in phase.flows]
        clients = [(f.src, f.client_port + i) for f in phase.flows for i in range(f.streams)]
        assert len(set(servers)) == len(servers)
        assert len(set(clients)) == len(clients)
        for host in phase.hosts.values():
            at = [action.at_ns for action in host.actions]
            assert at == sorted(at)
