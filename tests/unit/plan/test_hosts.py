from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from synthetic import inventory

from dumbbell.plan import Inventory, plan
from dumbbell.scenario import ScenarioError
from plan.plans import SCENARIO, only, planned, scenario


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


def test_packets_are_not_put_together_where_a_path_is_emulated(tmp_path: Path) -> None:
    text = SCENARIO.read_text()
    for asked in only(tmp_path, text).hosts.values():
        assert asked.state.offloads == {"tso": False, "gso": False, "gro": False, "lro": False}
    assert only(tmp_path, text).warnings == []
    asking = text.replace("hosts:\n", "hosts:\n  routers: {offloads: {gro: true}}\n")
    warned = only(tmp_path, asking)
    assert warned.hosts["router"].state.offloads == {"tso": False, "gso": False, "gro": True, "lro": False}
    warnings = [
        "super_packets: gro of router are asked to be on: "
        "queue.limit_packets of the path then count what they put together, up to 64 kB, as one packet"
    ]
    assert [*map(str, warned.warnings)] == warnings
    inventory_asks = inventory()
    inventory_asks.hosts["router"].nic_offloads = {"gro": True}
    point = plan(SCENARIO, inventory_asks).points[0]
    assert (point.hosts["router"].state, point.warnings) == (warned.hosts["router"].state, warned.warnings)
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
