from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from synthetic import REPOSITORY, inventory

from dumbbell.plan import Direction, Flow, Inventory, PingAction, Plan, Point, Sample, describe, plan
from dumbbell.plan.actions import CaptureAction, CommandAction, TcpListenAction, TcpPingAction
from dumbbell.plan.order import ordered_delay_us
from dumbbell.plan.path import PACKET_BYTES, Conditions, Queue, resolve_path
from dumbbell.plan.ports import EPHEMERAL
from dumbbell.scenario import NetworkPath, ScenarioError

SCENARIOS = REPOSITORY / "scenarios"
SCENARIO = SCENARIOS / "two_flow_fairness.yml"
S = 10**9


def planned() -> Point:
    (point,) = plan(SCENARIO, inventory()).points
    return point


def only(tmp_path: Path, text: str, **hosts: int) -> Point:
    (tmp_path / "x.yml").write_text(text)
    (point,) = plan(tmp_path / "x.yml", inventory(**hosts)).points
    return point


def scenario(flows: Any, **more: Any) -> str:
    """A scenario of these flows; JSON is YAML."""
    return json.dumps({"name": "x", "title": "x", "duration": "10s", "flows": flows} | more)


def measured(tmp_path: Path, **flow: Any) -> Flow:
    """The plan of one flow between the first pair."""
    ends = {"from": "senders[0]", "to": "receivers[0]"}
    (found,) = only(tmp_path, scenario({"flow": ends | flow})).phase("measurement").flows
    return found


# What every host of a measurement samples.
HOST_SAMPLES = {"link": True, "snmp": True, "cpu": True, "clock": True, "trace": False, "ebpf": False}

# --- the plan as a whole ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yml")), ids=lambda path: path.stem)
def test_same_input_same_bytes(path: Path) -> None:
    first = plan(path, inventory()).to_json()
    assert first == plan(path, inventory()).to_json()
    assert Plan.model_validate_json(first).to_json() == first


def test_the_point_is_the_configuration(tmp_path: Path) -> None:
    text = SCENARIO.read_text()
    for changed in (
        text.replace("title: Two", "title: 2"),
        text.replace("title: Two", "seed: 5\ntitle: Two"),  # nothing is drawn
        text.replace("min: 90%", "min: 80%"),
    ):
        assert text != changed
        assert only(tmp_path, changed).id == planned().id
    for changed in (text.replace("start: 5s", "start: 6s"), text.replace("1bdp}}", "2bdp}}")):
        assert text != changed
        assert only(tmp_path, changed).id != planned().id


def test_path_is_resolved() -> None:
    path = planned().path
    assert path is not None
    # 100 Mbit/s x 20 ms = 250 000 bytes = 165.1 packets of 1514 bytes
    assert (path.rtt_ns, path.forward.queue.limit_packets) == (20_000_000, 166)
    assert path.reverse == path.forward
    assert json.loads(planned().model_dump_json())["path"]["forward"]["queue"] == {
        "kind": "pfifo",
        "limit_packets": 166,
    }


@pytest.mark.parametrize(
    ("mtus", "packet_bytes", "packets"),
    [
        # 250 000 bytes = 27.7 packets of 9014 bytes
        ("testbed: {mtu: 9000}", 9014, 28),
        ("senders: {mtu: 9000}", 1514, 166),
        ("testbed: {mtu: 1280}", 1294, 194),
    ],
)
def test_a_bandwidth_delay_product_counts_the_largest_packets_of_the_path(
    tmp_path: Path, mtus: str, packet_bytes: int, packets: int
) -> None:
    text = re.sub(r"^hosts:\n( .*\n)*", f"hosts: {{{mtus}}}\n", SCENARIO.read_text(), flags=re.MULTILINE)
    path = only(tmp_path, text).path
    assert path is not None
    assert (path.packet_bytes, path.forward.queue.limit_packets) == (packet_bytes, packets)


def jumbo(**others: int) -> Inventory:
    """Hosts with an MTU of 9000 in the inventory, but for these."""
    asked = inventory()
    for name, host in asked.hosts.items():
        host.nic_mtu = others.get(name, 9000)
    return asked


def test_the_mtu_of_the_inventory_counts_where_the_scenario_names_none(tmp_path: Path) -> None:
    (point, *_) = plan(SCENARIO, jumbo()).points
    assert point.path is not None
    assert (point.path.packet_bytes, point.path.forward.queue.limit_packets) == (9014, 28)
    assert {host.state.mtu for host in point.hosts.values()} == {9000}
    # 9014 bytes with the 8972 of the payload of a full packet
    (rate,) = point.phase("calibration").flows
    assert (rate.payload_bytes, rate.rate_bps) == (8972, math.ceil(1.1 * 100e6 * 8972 / 9014))
    asking = SCENARIO.read_text().replace("txqueuelen: 1000", "mtu: 1400")
    (tmp_path / "x.yml").write_text(asking)
    (point, *_) = plan(tmp_path / "x.yml", jumbo()).points
    assert point.path is not None
    assert point.path.packet_bytes == 1414
    assert {host.state.mtu for host in point.hosts.values()} == {1400}


def test_of_hosts_with_different_mtus_the_smallest_counts() -> None:
    path = plan(SCENARIO, jumbo(receiver1=4000, receiver2=1500)).points[0].path
    assert path is not None
    assert path.packet_bytes == 1514


@pytest.mark.parametrize("where", ["inventory", "scenario"])
def test_a_router_that_cannot_receive_the_packets_of_its_hosts_is_refused(tmp_path: Path, where: str) -> None:
    text, asked = SCENARIO.read_text(), jumbo(router=1500)
    if where == "scenario":
        asked = inventory()
        text = text.replace("  testbed:\n", "  routers: {mtu: 1500}\n  testbed:\n    mtu: 9000\n")
    (tmp_path / "x.yml").write_text(text)
    with pytest.raises(
        ScenarioError, match="sender1 and receiver1 send each other packets of up to 9000 bytes"
    ) as said:
        plan(tmp_path / "x.yml", asked)
    assert "router receives no more than 1500: give them the same nic_mtu" in str(said.value)


def test_an_inventory_that_asks_for_the_default_mtu_changes_no_plan(tmp_path: Path) -> None:
    named = inventory()
    for host in named.hosts.values():
        host.nic_mtu, host.nic_offloads = 1500, {"tso": False, "rx": True}
    assert plan(SCENARIO, named).to_json() == plan(SCENARIO, inventory()).to_json()


def test_pings_alone_are_warned_of(tmp_path: Path) -> None:
    pings = "flows:\n  echo: {kind: ping, from: 'senders[0]', to: 'receivers[0]'}\n"
    text = SCENARIO.read_text()
    (tmp_path / "x.yml").write_text(text[: text.index("flows:")] + pings)
    warnings = plan(tmp_path / "x.yml", inventory()).warnings
    assert warnings == ["no flow sends data: pings find an idle path"]


def test_all_that_a_path_can_be_asked_for() -> None:
    forward = (
        "{rate: 100mbit, delay: 10ms, jitter: 1ms, distribution: normal, keep_order: true, duplicate: 1%, "
        "loss_gemodel: {p: 0.1%, r: 10%}, queue: {kind: fq_codel, limit: 1bdp, ecn: false, target: 2ms}}"
    )
    reverse = "{rate: 100mbit, delay: 10ms, queue: {kind: red, limit: 1bdp}}"
    path = NetworkPath.model_validate(
        {name: YAML(typ="safe").load(text) for name, text in (("forward", forward), ("reverse", reverse))}
    )
    planned = json.loads(
        resolve_path(path, lambda key, reason: pytest.fail(f"{key}: {reason}")).model_dump_json()
    )
    assert planned["forward"] == {
        "rate_bps": 100_000_000, "delay_us": 10_000, "loss": 0.0, "jitter_us": 1000, "distribution": "normal",
        "keep_order": True, "duplicate": 0.01,
        "loss_gemodel": {"p": 0.001, "r": 0.1, "loss_bad": 1.0, "loss_good": 0.0},
        "queue": {"kind": "fq_codel", "limit_packets": 166, "ecn": False, "target_us": 2000},
    }  # fmt: skip
    assert planned["reverse"]["queue"] == {"kind": "red", "limit_bytes": 250_000}


@pytest.mark.parametrize(
    ("asked", "share"),
    [
        ({}, 1),
        ({"loss": 0.05, "corrupt": 0.1}, 0.95 * 0.9),
        ({"loss_gemodel": {"p": 0.01, "r": 0.09, "loss_bad": 1.0, "loss_good": 0.0}}, 0.9),
        ({"loss_gemodel": {"p": 0.0, "r": 0.0, "loss_bad": 1.0, "loss_good": 0.25}}, 0.75),
    ],
)
def test_the_share_of_packets_that_arrives(asked: dict[str, Any], share: float) -> None:
    plain = {"rate_bps": 10**8, "delay_us": 0, "loss": 0.0, "queue": {"kind": "pfifo", "limit_packets": 166}}
    assert Direction.model_validate(plain | asked).arriving == pytest.approx(share)


@pytest.mark.parametrize(
    ("option", "varies"), [("jitter: 1ms", True), ("reorder: 1%", True), ("loss: 1%", False)]
)
def test_a_path_whose_rtt_varies(option: str, varies: bool) -> None:
    """Its quickest echo says nothing of it."""
    forward = f"{{rate: 1mbit, delay: 10ms, {option}, queue: {{kind: fq_codel}}}}"
    path = NetworkPath.model_validate({"forward": YAML(typ="safe").load(forward)})
    assert resolve_path(path, lambda key, reason: pytest.fail(f"{key}: {reason}")).jitters is varies


def test_measurement_is_that_of_the_data_model() -> None:
    phase = json.loads(planned().model_dump_json())["phases"][1]
    assert phase["flows"][0] == {
        "name": "flow1", "kind": "iperf3_tcp", "direction": "forward",
        "src_host": "sender1", "dst_host": "receiver1",
        "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5201, "client_port": 10001, "streams": 1,
        "start_ns": 0, "duration_ns": 30_000_000_000, "congestion_control": "cubic", "rate_bps": None,
    }  # fmt: skip
    assert phase["hosts"]["sender1"] == {
        "actions": [{"at_ns": 0, "kind": "iperf3_client", "flow": "flow1"}],
        "sample": {"tcp": ["flow1"], "qdisc": False} | HOST_SAMPLES | {"queues": True},
    }
    assert phase["hosts"]["receiver1"]["actions"][0]["at_ns"] == -5_000_000_000
    assert phase["hosts"]["router"] == {"actions": [], "sample": {"tcp": [], "qdisc": True} | HOST_SAMPLES}


def test_traces_are_of_every_host_and_ebpf_where_tcp_is_sampled(tmp_path: Path) -> None:
    flows = {
        "tcp": {"kind": "iperf3_tcp", "from": "senders[0]", "to": "receivers[0]"},
        "udp": {"kind": "udp", "from": "senders[1]", "to": "receivers[1]", "rate": "1mbit"},
    }
    path = {"forward": {"rate": "10mbit", "delay": "1ms", "queue": {"kind": "pfifo", "limit": "10packets"}}}
    text = scenario(flows, path=path, sampling={"trace": True, "ebpf": True})
    point = only(tmp_path, text)
    sampled = {host: part.sample for host, part in point.phase("measurement").hosts.items()}
    assert {host for host, sample in sampled.items() if sample.trace} == set(sampled)
    assert {host for host, sample in sampled.items() if sample.ebpf} == {"sender1", "receiver1"}
    assert "samples tcp, trace, ebpf" in describe(plan(tmp_path / "x.yml", inventory()))
    # The calibration needs neither.
    assert not any(
        part.sample.trace or part.sample.ebpf for part in point.phase("calibration").hosts.values()
    )


def test_a_senders_qdisc_that_counts_is_sampled(tmp_path: Path) -> None:
    flows = {"f": TCP}
    asked = {
        "senders": {"qdisc": "rapid"},
        "testbed": {"modules": {"sch_rapid": {"queue": "buggy", "gap": True}}},
    }
    for hosts, sampled in ((asked, {"router", "sender1"}), ({"senders": {"qdisc": "fq"}}, {"router"})):
        point = only(tmp_path, scenario(flows, hosts=hosts))
        parts = point.phase("measurement").hosts
        assert {host for host, part in parts.items() if part.sample.qdisc} == sampled
    assert only(tmp_path, scenario(flows, hosts=asked)).hosts["sender1"].state.modules == {
        "sch_rapid": {"gap": "Y", "queue": "buggy"}
    }


def test_captures_are_of_both_sides_of_the_router(tmp_path: Path) -> None:
    flows = {"udp": {"kind": "udp", "from": "senders[1]", "to": "receivers[1]", "rate": "1mbit"}}
    point = only(tmp_path, scenario(flows, sampling={"capture": True}))
    actions = {host: part.actions for host, part in point.phase("measurement").hosts.items()}
    assert [(a.at_ns, a.kind, a.name) for a in actions["router"] if isinstance(a, CaptureAction)] == [
        (-1_000_000_000, "capture", "vec1"),
        (-1_000_000_000, "capture", "vec2"),
    ]
    assert "-1.000 s  capture vec2" in describe(plan(tmp_path / "x.yml", inventory()))
    assert not any(
        a.kind == "capture" for part in point.phase("calibration").hosts.values() for a in part.actions
    )
    without = inventory()
    without.groups["routers"] = []
    with pytest.raises(ScenarioError, match=r"sampling\.capture: needs a host in the group routers"):
        plan(tmp_path / "x.yml", without)


@pytest.mark.parametrize("source", ["trace", "ebpf"])
def test_fetches_cannot_be_followed(tmp_path: Path, source: str) -> None:
    flow = {"kind": "http", "size": "1kB", "from": "senders[0]", "to": "receivers[0]"}
    with pytest.raises(
        ScenarioError, match=rf"x\.yml:1:\d+: sampling\.{source}: web is of kind http: ports "
    ):
        only(tmp_path, scenario({"web": flow}, sampling={source: True}))


def test_calibration_pings_one_pair_after_the_other_then_fills_the_path() -> None:
    phase = planned().phase("calibration")
    pings = [a for h in phase.hosts.values() for a in h.actions if isinstance(a, PingAction)]
    pings.sort(key=lambda ping: ping.at_ns)
    assert [ping.name for ping in pings] == ["sender1-receiver1", "sender2-receiver2"]
    assert all(ping.count == 51 for ping in pings)
    (load,) = phase.flows
    assert load.model_dump() == {
        "name": "calibration_rate", "kind": "udp", "direction": "forward",
        "src_host": "sender1", "dst_host": "receiver1",
        "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5201, "client_port": 10001, "streams": 1,
        "start_ns": load.start_ns, "duration_ns": 4_000_000_000, "congestion_control": None,
        # 110 Mbit/s of packets, whose payload is 1472 of 1514 bytes
        "rate_bps": 106_948_481, "payload_bytes": 1472,
    }  # fmt: skip
    times = [(ping.at_ns, ping.at_ns + ping.count * ping.interval_ns) for ping in pings]
    times.append((load.start_ns, load.end_ns))
    assert all(end < start for (_, end), (start, _) in pairwise(times))
    assert load.end_ns < phase.duration_ns
    ends = {host: [a.kind for a in part.actions if a.kind != "ping"] for host, part in phase.hosts.items()}
    assert ends == {"sender1": ["udp_send"], "receiver1": ["udp_receive"], "sender2": [], "router": []}
    sampled = {host: part.sample for host, part in phase.hosts.items() if part.sample.anything}
    assert sampled == {"router": Sample(qdisc=True)}


def test_without_a_path_its_rate_is_not_measured(tmp_path: Path) -> None:
    text = SCENARIO.read_text()
    text = text[: text.index("path:")] + text[text.index("hosts:") : text.index("expect:")]
    without = only(tmp_path, text)
    assert without.path is None
    calibration = without.phase("calibration")
    assert calibration.flows == []
    assert all(part.sample == Sample() for part in calibration.hosts.values())


# --- hosts -----------------------------------------------------------------------------------------


def test_packets_are_not_put_together_where_a_path_is_emulated(tmp_path: Path) -> None:
    text = SCENARIO.read_text()
    for asked in only(tmp_path, text).hosts.values():
        assert asked.state.offloads == {"tso": False, "gso": False, "gro": False, "lro": False}
    assert only(tmp_path, text).warnings == []
    asking = text.replace("hosts:\n", "hosts:\n  routers: {offloads: {gro: true}}\n")
    warned = only(tmp_path, asking)
    assert warned.hosts["router"].state.offloads == {"tso": False, "gso": False, "gro": True, "lro": False}
    warnings = [
        "gro of router are asked to be on: "
        "queue.limit_packets of the path then count what they put together, up to 64 kB, as one packet"
    ]
    assert warned.warnings == warnings
    inventory_asks = inventory()
    inventory_asks.hosts["router"].nic_offloads = {"gro": True}
    point = plan(SCENARIO, inventory_asks).points[0]
    assert (point.hosts["router"].state, point.warnings) == (warned.hosts["router"].state, warnings)
    bare = (
        re.sub(r"path:\n(  .*\n)+", "", text)
        .replace("min: 90%", "min: 9mbit")
        .replace("utilisation", "goodput")
    )
    assert only(tmp_path, bare).hosts["router"].state.offloads == {}
    asking = bare.replace("hosts:\n", "hosts:\n  senders: {offloads: {tso: true}}\n")
    assert only(tmp_path, asking).warnings == []


def test_the_host_has_the_last_word_on_its_state(tmp_path: Path) -> None:
    special = "hosts:\n  sender1: {txqueuelen: 50, offloads: {tso: true}}\n  senders: {txqueuelen: 70}\n"
    point = only(tmp_path, SCENARIO.read_text().replace("hosts:\n", special))
    states = {host: detail.state for host, detail in point.hosts.items()}
    assert {host: state.txqueuelen for host, state in states.items()} == {
        "sender1": 50, "sender2": 70, "receiver1": 1000, "receiver2": 1000, "router": 1000,
    }  # fmt: skip
    assert states["sender1"].offloads == {"tso": True, "gso": False, "gro": False, "lro": False}
    assert states["router"].congestion_controls == []


def test_all_that_a_host_can_be_asked_for(tmp_path: Path) -> None:
    asked = {
        "kernel": "6.12.117",
        "modules": {"tcp_bbr": {"fast": True, "gain": 3}},
        "offloads": {"tso": True},
        "txqueuelen": 500,
        "mtu": 9000,
        "qdisc": "fq",
        "sysctls": {"net.ipv4.tcp_sack": 0},
        "routes": {"quickack": True},
    }
    ends = {"from": "left", "to": "receivers[0]", "kind": "iperf3_tcp", "congestion_control": "bbr"}
    text = scenario({"flow": ends}, roles={"left": "senders[1]"}, hosts={"left": asked})
    hosts = only(tmp_path, text).hosts
    assert hosts["sender2"].state.model_dump() == asked | {
        "modules": {"tcp_bbr": {"fast": "Y", "gain": "3"}},
        "sysctls": {"net.ipv4.tcp_sack": "0"},
        "congestion_controls": ["bbr"],
    }
    assert hosts["sender1"].state.kernel is None


def test_rapid_has_the_routes_that_tell_its_gaps(tmp_path: Path) -> None:
    flow = {"from": "senders[0]", "to": "receivers[0]", "kind": "iperf3_tcp", "congestion_control": "rapid"}
    hosts = only(tmp_path, scenario({"flow": flow})).hosts
    routes = {host: of.state.routes for host, of in hosts.items()}
    needed = {"quickack": True, "tcp_usec_ts": True}
    assert (routes["sender1"], routes["receiver1"], routes["router"]) == (needed, needed, None)
    otherwise = scenario({"flow": flow}, hosts={"receiver1": {"routes": {"quickack": False}}})
    assert only(tmp_path, otherwise).hosts["receiver1"].state.routes == needed | {"quickack": False}
    assert "routes" not in hosts["router"].state.model_dump()


def test_rapid_has_tcp_s_timestamps_in_all_points(tmp_path: Path) -> None:
    ends = {"from": "senders[0]", "to": "receivers[0]"}
    flow = ends | {"kind": "iperf3_tcp", "congestion_control": "$control"}

    def asked(controls: list[str], **hosts: Any) -> set[str | None]:
        (tmp_path / "x.yml").write_text(scenario({"flow": flow}, matrix={"control": controls}, hosts=hosts))
        points = plan(tmp_path / "x.yml", inventory()).points
        return {point.hosts["sender1"].state.sysctls.get("net.ipv4.tcp_timestamps") for point in points}

    assert asked(["rapid", "cubic"]) == {"1"}
    assert asked(["cubic"]) == {None}
    for value in (0, 2):
        assert asked(["cubic"], testbed={"sysctls": {"net.ipv4.tcp_timestamps": value}}) == {str(value)}
    assert asked(["rapid"], testbed={"sysctls": {"net.ipv4.tcp_timestamps": 2}}) == {"2"}
    off = {"sysctls": {"net.ipv4.tcp_timestamps": 0}}
    assert asked(["rapid"], receiver2=off) == {"1"}  # it has no flow of it
    with pytest.raises(ScenarioError) as refused:
        asked(["rapid"], receivers=off)
    assert str(refused.value).endswith(
        "hosts.receivers.sysctls.net.ipv4.tcp_timestamps: rapid (on receiver1) reads gaps from TCP's "
        "timestamps: ask 1, or nothing"
    )


def test_hosts_that_take_no_part_are_brought_to_their_state_and_then_left_alone() -> None:
    (larger,) = plan(SCENARIO, inventory(senders=3)).points
    assert larger.hosts["sender3"].state.offloads == {"tso": False, "gso": False, "gro": False, "lro": False}
    parts = {phase.phase: set(phase.hosts) for phase in larger.phases}
    assert parts == {
        "calibration": {"sender1", "sender2", "receiver1", "router"},
        "measurement": {"sender1", "sender2", "receiver1", "receiver2", "router"},
    }


def test_hosts_without_an_experiment_interface_are_no_part_of_the_plan() -> None:
    assert sorted(planned().hosts) == ["receiver1", "receiver2", "router", "sender1", "sender2"]
    assert "archive" not in planned().model_dump_json()


# --- flows -----------------------------------------------------------------------------------------


def test_options_of_a_tcp_flow(tmp_path: Path) -> None:
    options = {
        "start": "0.5s",
        "duration": "9s",
        "mss": 1400,
        "dscp": "af41",
        "socket_buffer": "64KiB",
        "pacing": "2mbit",
    }
    flow = measured(tmp_path, kind="iperf3_tcp", rate="8mbit", streams=2, **options)
    assert (
        flow.model_dump(exclude_none=True).items()
        >= {
            "mss_bytes": 1400,
            "dscp": 34,
            "socket_buffer_bytes": 65536,
            "pacing_bps": 2_000_000,
            "rate_bps": 8_000_000,
            "streams": 2,
            "start_ns": S // 2,
            "duration_ns": 9 * S,
        }.items()
    )


def test_a_reversed_flow_and_its_path(tmp_path: Path) -> None:
    slow = {"rate": "1mbit", "delay": "5ms", "queue": {"kind": "pfifo", "limit": "1bdp"}}
    flow = {"kind": "iperf3_tcp", "from": "senders[0]", "to": "receivers[0]"}
    flows = {"there": flow, "back": flow | {"direction": "reverse"}}
    point = only(tmp_path, scenario(flows, path={"forward": slow | {"rate": "9mbit"}, "reverse": slow}))
    there, back = point.phase("measurement").flows
    assert (there.src_host, there.dst_host, there.direction) == ("sender1", "receiver1", "forward")
    assert (back.src_host, back.dst_host, back.direction) == ("receiver1", "sender1", "reverse")
    assert point.path is not None
    assert [point.path.rate_bps(f.direction) for f in (there, back)] == [9_000_000, 1_000_000]
    # Both ways are calibrated, one after the other.
    one, other = point.phase("calibration").flows
    assert (one.src_host, other.src_host) == ("sender1", "receiver1")
    assert one.end_ns < other.start_ns
    assert one.name != other.name


def test_a_repeated_flow_of_different_pairs(tmp_path: Path) -> None:
    ends = {"from": "senders[1]", "to": "receivers[0]", "start": "1s", "duration": "5s"}
    repeat = {"count": 3, "every": "2s", "pairs": "different"}
    flows = {"flow": ends | {"kind": "iperf3_tcp", "repeat": repeat}}
    point = only(tmp_path, scenario(flows), senders=4, receivers=3)
    found = [(f.name, f.src_host, f.dst_host, f.start_ns // S, f.end_ns // S) for f in
             point.phase("measurement").flows]  # fmt: skip
    assert found == [
        ("flow1", "sender2", "receiver1", 1, 6),
        ("flow2", "sender3", "receiver2", 3, 8),
        ("flow3", "sender4", "receiver3", 5, 10),
    ]


def steps(flow: Flow) -> list[tuple[float, int | None]]:
    later = [(step.at_ns / S, step.rate_bps) for step in flow.rate_steps or []]
    return [(0, flow.rate_bps), *later]


def test_udp_that_comes_and_goes(tmp_path: Path) -> None:
    flow = measured(tmp_path, kind="udp", rate="1mbit", start="1s", active="2s", idle="3s")
    assert (flow.start_ns, flow.end_ns, flow.payload_bytes) == (S, 10 * S, 1472)
    assert steps(flow) == [(0, 1_000_000), (2, 0), (5, 1_000_000), (7, 0)]

    periods = ["2s-3s", {"during": "3s-4s", "rate": "5mbit"}, "6s-8s"]
    flow = measured(tmp_path, kind="udp", rate="1mbit", periods=periods, datagram="100B")
    assert (flow.start_ns, flow.end_ns, flow.payload_bytes) == (2 * S, 8 * S, 100)
    assert steps(flow) == [(0, 1_000_000), (1, 5_000_000), (2, 0), (4, 1_000_000)]

    flow = measured(tmp_path, kind="udp", rate="1mbit")
    assert steps(flow) == [(0, 1_000_000)]


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ({"exponential": "20ms"}, 0, 10 * S),
        ({"pareto": "20ms"}, 20_000_000 // 3, 10 * S),  # its least is mean x (shape - 1) / shape
        ({"pareto": "20ms", "shape": 3}, 20_000_000 * 2 // 3, 10 * S),
        ({"uniform": "10ms-30ms"}, 10_000_000, 30_000_000),
    ],
)
def test_drawn_durations(tmp_path: Path, asked: dict[str, Any], least: int, most: int) -> None:
    flow = measured(tmp_path, kind="udp", rate="1mbit", active=asked, idle=asked)
    at = [0, *(step.at_ns for step in flow.rate_steps or [])]
    drawn = [later - earlier for earlier, later in pairwise(at)]
    assert all(least - 1000 <= d <= most for d in drawn)
    assert sum(drawn) / len(drawn) == pytest.approx(20_000_000, rel=0.35)
    assert len(set(drawn)) > 100


def test_a_repetition_draws_anew_and_alike_for_all_points(tmp_path: Path) -> None:
    tcp = {"kind": "iperf3_tcp", "from": "senders[0]", "to": "receivers[0]"}
    udp = tcp | {"kind": "udp", "rate": "1mbit", "active": {"exponential": "1s"}, "idle": "1s"}
    flows = {"tcp": tcp | {"congestion_control": ["cubic", "reno"]}, "udp": udp}

    def drawn(seed: int) -> dict[int, set[str]]:
        (tmp_path / "x.yml").write_text(scenario(flows, repetitions=3, seed=seed))
        found: dict[int, set[str]] = {}
        for point in plan(tmp_path / "x.yml", inventory()).points:
            found.setdefault(point.repetition, set()).add(str(point.phase("measurement").flows[1].rate_steps))
        return found

    assert [len(of_points) for of_points in drawn(1).values()] == [1, 1, 1]
    assert len(set.union(*drawn(1).values())) == 3
    assert drawn(1) != drawn(2)


def test_fetches_are_sent_by_the_server(tmp_path: Path) -> None:
    flow = {
        "kind": "http",
        "from": "senders[0]",
        "to": "receivers[0]",
        "size": "76800B",
        "congestion_control": "reno",
    }
    there = flow | {"start": "2s", "count": 100, "think": "50ms"}
    back = flow | {"direction": "reverse", "duration": "3s", "connections": "persistent"}
    point = only(tmp_path, scenario({"there": there, "back": back}))
    phase = point.phase("measurement")
    assert phase.flows[0].model_dump() == {
        "name": "there", "kind": "http", "direction": "forward",
        "src_host": "sender1", "dst_host": "receiver1",
        "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5201, "client_port": 0, "streams": 1,
        "start_ns": 2 * S, "duration_ns": 8 * S, "congestion_control": "reno", "rate_bps": None,
        "fetch_bytes": 76_800, "fetches": 100, "think_ns": 50_000_000, "persistent": False,
    }  # fmt: skip
    asked = phase.flows[1].model_dump()
    assert (asked["src_host"], asked["dst_host"], asked["direction"]) == ("receiver1", "sender1", "reverse")
    assert (asked["duration_ns"], asked["think_ns"], asked["persistent"]) == (3 * S, 0, True)
    assert "fetches" not in asked
    assert [flow.ports for flow in phase.flows] == [(5201, 0), (5201, 0)]
    actions = {host: [(a.at_ns, a.kind, a.flow) for a in part.actions] for host, part in phase.hosts.items()}  # type: ignore[union-attr]
    assert actions == {
        "sender1": [(-5 * S, "http_server", "there"), (0, "http_client", "back")],
        "receiver1": [(-5 * S, "http_server", "back"), (2 * S, "http_client", "there")],
        "router": [],
    }
    assert phase.hosts["sender1"].sample.tcp == phase.hosts["receiver1"].sample.tcp == ["there", "back"]
    assert phase.hosts["sender1"].writes_rows
    assert point.hosts["receiver1"].state.congestion_controls == ["reno"]


def test_ndt_runs_its_own_programs_for_ten_seconds(tmp_path: Path) -> None:
    ends = {"from": "senders[0]", "to": "receivers[0]"}
    down = ends | {"kind": "ndt7_download", "start": "2s"}
    up = ends | {"kind": "ndt7_upload", "start": "3s"}
    point = only(tmp_path, scenario({"down": down, "up": up}, duration="13s"))
    phase = point.phase("measurement")
    assert [(flow.ports, flow.start_ns, flow.end_ns) for flow in phase.flows] == [
        ((5201, 0), 2 * S, 12 * S),
        ((0, 5201), 3 * S, 13 * S),
    ]
    commands = {
        host: {action.flow: action for action in part.actions if isinstance(action, CommandAction)}
        for host, part in phase.hosts.items()
    }
    assert {host: {name: (a.kind, a.at_ns) for name, a in of.items()} for host, of in commands.items()} == {
        "sender1": {"down": ("command_server", -5 * S), "up": ("command_client", 3 * S)},
        "receiver1": {"down": ("command_client", 2 * S), "up": ("command_server", -5 * S)},
        "router": {},
    }
    server, client = commands["sender1"]["down"].argv, commands["receiver1"]["down"].argv
    assert server[:3] == ["ndt-server", "-ndt7_addr_cleartext", "198.18.1.11:5201"]
    assert all(word.startswith(("-", "127.0.0.1:")) or "." in word for word in server[3:15])
    assert client == [
        *("ndt7-client", "-server", "198.18.1.11:5201", "-scheme", "ws", "-format", "json", "-upload=false"),
    ]
    assert commands["sender1"]["up"].argv[-1] == "-download=false"
    assert phase.hosts["sender1"].sample.tcp == phase.hosts["receiver1"].sample.tcp == ["down", "up"]


def test_ndt_can_be_no_shorter(tmp_path: Path) -> None:
    flow = {"kind": "ndt7_upload", "from": "senders[0]", "to": "receivers[0]"}
    with pytest.raises(ScenarioError, match="an NDT test lasts 10 s: give it no duration"):
        only(tmp_path, scenario({"up": flow | {"duration": "5s"}}))
    with pytest.raises(ScenarioError, match="ends at 11s, after the scenario's duration of 10s"):
        only(tmp_path, scenario({"up": flow | {"start": "1s"}}))


def test_atou_has_both_ends_configured(tmp_path: Path) -> None:
    ends = {"kind": "atou", "from": "senders[0]", "to": "receivers[0]"}
    sender = {"vegas": 1, "multiplier": 0.9, "vegas_rtt": "max", "droplist": [9000, 5000]}
    flow = ends | {"start": "2s", "sender": sender, "receiver": {"sack": 1, "delack": 40}, "trace": True}
    point = only(tmp_path, scenario({"flow": flow, "plain": ends | {"mode": "bulk"}}))
    phase = point.phase("measurement")
    assert phase.flows[0].model_dump() == {
        "name": "flow", "kind": "atou", "direction": "forward",
        "src_host": "sender1", "dst_host": "receiver1",
        "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5201, "client_port": 10_001, "streams": 1,
        "start_ns": 2 * S, "duration_ns": 8 * S, "congestion_control": None, "rate_bps": None,
        "sender": {"multiplier": "0.9", "vegas": "1", "vegas_rtt": "max", "droplist": "9000,5000"},
        "receiver": {"sack": "1", "delack": "40"}, "mode": "precise", "trace": True,
    }  # fmt: skip
    assert phase.flows[0].protocols == ("udp",)
    plain = phase.flows[1]
    assert (plain.sender, plain.receiver, plain.mode, plain.trace) == ({}, {}, "bulk", False)
    actions = {host: [(a.at_ns, a.kind, a.flow) for a in part.actions] for host, part in phase.hosts.items()}  # type: ignore[union-attr]
    assert actions == {
        "sender1": [(0, "atou_send", "plain"), (2 * S, "atou_send", "flow")],
        "receiver1": [(-5 * S, "atou_serve", "flow"), (-5 * S, "atou_serve", "plain")],
        "router": [],
    }
    assert phase.hosts["sender1"].sample.tcp == ["flow", "plain"]  # its receiver has no windows
    assert phase.hosts["receiver1"].sample.tcp == []
    assert point.hosts["sender1"].state.congestion_controls == []


def test_what_varies_of_atou_is_a_point_each(tmp_path: Path) -> None:
    flow: dict[str, Any] = {"kind": "atou", "from": "senders[0]", "to": "receivers[0]"}
    flow |= {"sender": {"dup_thresh": [3, 19], "droplist": [5, 6], "increment": "$k"}}
    (tmp_path / "x.yml").write_text(scenario({"flow": flow}, matrix={"k": [1, 10]}))
    points = plan(tmp_path / "x.yml", inventory()).points
    levels = [(point.levels["k"], point.levels["dup_thresh"]) for point in points]
    assert sorted(levels) == [("1", "19"), ("1", "3"), ("10", "19"), ("10", "3")]
    assert {point.phase("measurement").flows[0].sender["droplist"] for point in points} == {"5,6"}  # type: ignore[index]


def test_ping_beside_other_flows(tmp_path: Path) -> None:
    flow = {"kind": "ping", "from": "senders[0]", "to": "receivers[1]", "start": "2s", "interval": "50ms"}
    point = only(tmp_path, scenario({"probe": flow}))
    (ping,) = point.phase("measurement").hosts["sender1"].actions
    assert ping.model_dump() == {
        "at_ns": 2 * S, "kind": "ping", "name": "probe", "dst": "198.18.2.12", "count": 160,
        "interval_ns": 50_000_000,
    }  # fmt: skip


def test_a_command_gets_addresses_and_ports(tmp_path: Path) -> None:
    flow = {
        "kind": "command",
        "from": "senders[0]",
        "to": "receivers[0]",
        "start": "1s",
        "client": ["nc", "-s", "{src}", "-p", "{client_port}", "{dst}", "{server_port}"],
        "server": ["nc", "-l", "-p", "{server_port}"],
        "sample": True,
    }
    point = only(tmp_path, scenario({"copy": flow}))
    hosts = point.phase("measurement").hosts
    assert hosts["sender1"].actions[0].model_dump() == {
        "at_ns": S, "kind": "command_client", "flow": "copy",
        "argv": ["nc", "-s", "198.18.1.11", "-p", "10001", "198.18.2.11", "5201"],
    }  # fmt: skip
    assert hosts["receiver1"].actions[0].model_dump()["argv"] == ["nc", "-l", "-p", "5201"]
    assert hosts["receiver1"].sample.tcp == hosts["sender1"].sample.tcp == ["copy"]


def test_cool_down_is_silent_time_of_the_measurement(tmp_path: Path) -> None:
    flows = {"flow": {"kind": "iperf3_tcp", "from": "senders[0]", "to": "receivers[0]"}}
    phase = only(tmp_path, scenario(flows, cool_down="3s")).phase("measurement")
    assert (phase.flows[0].end_ns, phase.duration_ns) == (10 * S, 13 * S)


flow = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["iperf3_tcp", "iperf3_udp", "udp", "http"]),
        "from": st.integers(0, 3).map("senders[{}]".format),
        "to": st.integers(0, 3).map("receivers[{}]".format),
        "direction": st.sampled_from(["forward", "reverse"]),
        "start": st.integers(0, 5).map("{}s".format),
        "duration": st.integers(1, 5).map("{}s".format),
        "streams": st.integers(1, 128),
    }
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    flows=st.lists(flow, min_size=1, max_size=12),
    ports=st.none() | st.tuples(st.integers(1024, 30_000), st.integers(30_000, 60_000)),
)
def test_no_two_connections_share_a_port_nor_take_an_ephemeral_one(
    tmp_path: Path, flows: Sequence[dict[str, Any]], ports: tuple[int, int] | None
) -> None:
    listed = {}
    for i, f in enumerate(flows):
        options = {"iperf3_tcp": {}, "http": {"size": "1kB"}}.get(f["kind"], {"rate": "1mbit"})
        iperf3 = f["kind"].startswith("iperf3")
        listed[f"f{i}"] = {k: v for k, v in f.items() if k != "streams" or iperf3} | options
    sysctls = {"net.ipv4.ip_local_port_range": "{} {}".format(*ports)} if ports else {}
    resolved = only(
        tmp_path, scenario(listed, hosts={"testbed": {"sysctls": sysctls}}), senders=4, receivers=4
    )
    low, high = ports or EPHEMERAL
    for phase in resolved.phases:
        ends = [(f.src, f.dst) if f.kind == "http" else (f.dst, f.src) for f in phase.flows]
        taken = [(server, f.server_port) for (server, _), f in zip(ends, phase.flows, strict=True)]
        taken += [
            (client, f.client_port + i)
            for (_, client), f in zip(ends, phase.flows, strict=True)
            for i in range(f.streams)
            if f.kind != "http"  # the kernel chooses
        ]
        assert len(set(taken)) == len(taken)
        if phase.phase == "measurement":
            assert not any(low <= port <= high for _, port in taken)
        for host in phase.hosts.values():
            at = [action.at_ns for action in host.actions]
            assert at == sorted(at)


# --- a path that changes --------------------------------------------------------------------------

WAY = {"rate": "100mbit", "delay": "10ms", "queue": {"kind": "pfifo", "limit": "1bdp"}}
TCP = {"kind": "iperf3_tcp", "from": "senders[0]", "to": "receivers[0]"}


def changing(tmp_path: Path, *changes: Any, forward: Any = WAY, reverse: Any = WAY) -> Point:
    path = {"forward": forward | {"changes": list(changes)}} | ({"reverse": reverse} if reverse else {})
    return only(tmp_path, scenario({"flow": TCP}, path=path))


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
    at_100mbit = 11 * S + 10 * (100_000_000 + 2 * 166 * 1514 * 8 * 10)
    assert restored_ns({"delay": "90ms"}) == at_100mbit
    assert restored_ns({"delay": "90ms"}, delay="10ms") == at_100mbit + 100_000_000
    assert restored_ns({"delay": "10ms"}) == 12 * S  # a second at the least
    assert restored_ns({"delay": "3s"}) == 20 * S  # before hosts end what has not ended
    constant = only(tmp_path, scenario({"flow": TCP}, path={"forward": WAY}))
    assert "restore_ns" not in constant.phase("measurement").hosts["router"].model_dump()


@settings(max_examples=20, deadline=None)
@given(
    mbps=st.sampled_from([1, 10, 100, 1000]),
    jitter_us=st.integers(500, 20_000),
    normal=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_mean_delay_where_order_is_kept_is_that_of_a_queue_of_packets(
    mbps: int, jitter_us: int, normal: bool, seed: int
) -> None:
    way = Conditions(
        rate_bps=mbps * 10**6,
        delay_us=100_000,
        loss=0.0,
        jitter_us=jitter_us,
        distribution="normal" if normal else None,
        keep_order=True,
        queue=Queue(kind="pfifo", limit_packets=100),
    )
    rng, n = np.random.default_rng(seed), 200_000
    unit = rng.normal(size=n).clip(-4, 4) if normal else rng.uniform(-1, 1, n)
    sent = np.arange(n) * 1514 * 8 / mbps
    left = np.maximum.accumulate(sent + 100_000 + jitter_us * unit)
    simulated = float((left - sent)[n // 10 :].mean())
    assert ordered_delay_us(way, PACKET_BYTES) == pytest.approx(simulated, abs=0.05 * jitter_us)


def test_keep_order_with_jitter_is_warned_about(tmp_path: Path) -> None:
    jitter = {"delay": "50ms", "jitter": "12ms", "distribution": "normal"}
    point = changing(
        tmp_path, {"at": "2s", "jitter": "1ms"}, forward=WAY | jitter | {"keep_order": True}, reverse=WAY
    )
    first, second = point.warnings
    assert first.startswith("path.forward: keep_order holds packets back behind those with longer delays: at")
    assert "the mean delay is about 75.5 ms, asked are 50 ms" in first
    assert second.startswith("path.forward from 2 s: keep_order")
    assert changing(tmp_path, {"at": "2s", "jitter": "1ms"}, forward=WAY | jitter, reverse=WAY).warnings == []


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


@given(
    at_ms=st.lists(st.integers(1, 199), max_size=6, unique=True).map(sorted),
    rates_mbps=st.lists(st.integers(1, 400), min_size=7, max_size=7),
    window_ms=st.tuples(st.integers(0, 199), st.integers(1, 200)).filter(lambda w: w[0] < w[1]),
)
def test_the_mean_rate_is_that_of_every_millisecond(
    at_ms: list[int], rates_mbps: list[int], window_ms: tuple[int, int]
) -> None:
    constant = {"delay_us": 0, "loss": 0.0, "queue": {"kind": "pfifo", "limit_packets": 9}}
    changes = [
        constant | {"at_ns": 10**6 * at, "rate_bps": 10**6 * rate}
        for at, rate in zip(at_ms, rates_mbps[1:], strict=False)
    ]
    way = Direction.model_validate(constant | {"rate_bps": 10**6 * rates_mbps[0], "changes": changes or None})
    start, end = window_ms
    each = [rates_mbps[sum(at <= ms for at in at_ms)] for ms in range(start, end)]
    assert way.mean_rate_bps(10**6 * start, 10**6 * end) == pytest.approx(10**6 * sum(each) / len(each))
    assert [way.at(10**6 * ms).rate_bps for ms in range(start, end)] == [10**6 * rate for rate in each]


# --- flows with a delay of their own --------------------------------------------------------------


def test_a_flow_with_a_delay_of_its_own(tmp_path: Path) -> None:
    ends = {"from": "senders[0]", "to": "receivers[0]"}
    client = {"client": ["nc", "{dst}", "{server_port}"]}
    flows = {
        "tcp": TCP | {"delay": "10ms", "streams": 3, "repeat": {"count": 2}},
        "udp": ends | {"kind": "udp", "rate": "1mbit", "delay": "30ms", "direction": "reverse"},
        "iperf": ends | {"kind": "iperf3_udp", "rate": "1mbit", "delay": "30ms"},
        "copy": ends | client | {"kind": "command", "delay": "5ms"},
        "web": ends | {"kind": "http", "size": "10kB", "delay": "20ms"},
        "plain": TCP | {"delay": "0ms"},
    }
    point = only(tmp_path, scenario(flows, path={"forward": WAY}))
    assert point.path is not None
    data = {"src": "198.18.1.11", "dst": "198.18.2.11"}
    assert [delay.model_dump() for delay in point.path.forward.flows or []] == [
        data | {"delay_us": 10_000, "protocol": "tcp", "dst_port": 5201},
        data | {"delay_us": 10_000, "protocol": "tcp", "dst_port": 5202},
        data | {"delay_us": 30_000, "protocol": "udp", "dst_port": 5203},
        data | {"delay_us": 5000, "protocol": "tcp", "dst_port": 5204},
        data | {"delay_us": 5000, "protocol": "udp", "dst_port": 5204},
        # Its server sends. The reversed flow has the first port there.
        data | {"delay_us": 20_000, "protocol": "tcp", "src_port": 5202},
    ]
    (back,) = point.path.reverse.flows or []
    assert (back.dst, back.protocol, back.delay_us) == ("198.18.1.11", "udp", 30_000)
    measured = {flow.name: flow for flow in point.phase("measurement").flows}
    assert measured["tcp2"].delay_us == 10_000
    assert "delay_us" not in measured["plain"].model_dump()
    # The queue's limit is by the RTT of the path.
    assert point.path.forward.queue.limit_packets == 166


def test_each_delay_is_measured_by_two_probes_before_the_path_is_filled(tmp_path: Path) -> None:
    ends = {"from": "senders[0]", "to": "receivers[0]"}
    flows = {
        "a": TCP | {"delay": "10ms"},
        "b": ends | {"kind": "udp", "rate": "1mbit", "delay": "20ms"},
        "c": ends | {"kind": "http", "size": "10kB", "delay": "20ms"},
    }
    point = only(tmp_path, scenario(flows, path={"forward": WAY}))
    calibration = point.phase("calibration")
    listens = [a for a in calibration.hosts["receiver1"].actions if isinstance(a, TcpListenAction)]
    pings = [a for a in calibration.hosts["sender1"].actions if isinstance(a, TcpPingAction)]
    assert [(a.name, a.dst_port) for a in pings] == [("a.delayed", 5201), ("a.plain", 5203)]
    assert [(a.name, a.dst_port, a.at_ns, a.src) for a in listens] == [
        ("a.delayed", 5201, -5 * S, "198.18.1.11"),
        ("a.plain", 5203, -5 * S, "198.18.1.11"),
    ]
    delayed, plain, load = calibration.flows
    assert [f.name for f in calibration.flows] == ["b.delayed", "b.plain", "calibration_rate"]
    assert (delayed.server_port, delayed.rate_bps, delayed.payload_bytes) == (5202, 10_240, 64)
    # Asked by the client, wherever the data comes from.
    (web, other) = [a for a in calibration.hosts["receiver1"].actions if isinstance(a, TcpPingAction)]
    assert (web.name, web.dst, web.dst_port, other.dst_port) == ("c.delayed", "198.18.1.11", 5201, 5202)
    answered = [a for a in calibration.hosts["sender1"].actions if isinstance(a, TcpListenAction)]
    assert [(a.dst_port, a.src) for a in answered] == [(5201, "198.18.2.11"), (5202, "198.18.2.11")]
    # In turns, and a step after the other.
    assert pings[0].at_ns < pings[1].at_ns < pings[0].at_ns + pings[0].count * pings[0].interval_ns
    assert pings[1].at_ns + pings[1].count * pings[1].interval_ns < delayed.start_ns < plain.start_ns
    assert plain.end_ns < load.start_ns


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    delays_ms=st.lists(
        st.tuples(st.sampled_from(["iperf3_tcp", "udp", "http"]), st.integers(0, 3)), min_size=1, max_size=8
    )
)
def test_nothing_but_a_flow_and_its_probe_meets_its_delay(
    tmp_path: Path, delays_ms: list[tuple[str, int]]
) -> None:
    ends = {"from": "senders[0]", "to": "receivers[0]"}
    needs = {"udp": {"rate": "1mbit"}, "http": {"size": "10kB"}}
    flows = {
        f"f{i}": ends | {"kind": kind, "delay": f"{ms}ms"} | needs.get(kind, {})
        for i, (kind, ms) in enumerate(delays_ms)
    }
    point = only(tmp_path, scenario(flows, path={"forward": WAY}))
    assert point.path is not None
    delayed = {
        (d.dst, d.dst_port) if d.dst_port else (d.src, d.src_port): d.delay_us
        for d in point.path.forward.flows or []
    }
    for flow in point.phase("measurement").flows:
        assert delayed.get((flow.server, flow.server_port)) == flow.delay_us
    calibration = point.phase("calibration")
    probes = {flow.name: (flow.dst, flow.server_port) for flow in calibration.flows}
    for host in calibration.hosts.values():
        for action in host.actions:
            if isinstance(action, TcpPingAction):
                probes[action.name] = (action.dst, action.dst_port)
    assert {name for name, at in probes.items() if at in delayed} == {
        f"{flow.name}.delayed" for flow in point.phase("measurement").flows if flow.delay_us
    }


def test_new_plans_have_the_settings_of_hosts_judged() -> None:
    made = plan(REPOSITORY / "scenarios/two_flow_fairness.yml", inventory())
    assert made.observed
    older = made.model_dump() | {"schema_version": 1}
    assert not Plan.model_validate(older).observed
