from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import inventory

from dumbbell.plan import Flow, plan
from dumbbell.plan.actions import CommandAction
from dumbbell.plan.ports import EPHEMERAL
from dumbbell.scenario import ScenarioError
from plan.plans import S, measured, only, scenario


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


def test_buffers_of_each_end(tmp_path: Path) -> None:
    flow = measured(tmp_path, kind="tcp", send_buffer="16KiB")
    assert flow.own == {"send_buffer_bytes": "16384"}
    assert (flow.send_buffer_bytes, flow.receive_buffer_bytes) == (16384, None)
    flow = measured(tmp_path, kind="tcp", receive_buffer="32KiB")
    assert (flow.send_buffer_bytes, flow.receive_buffer_bytes) == (None, 32768)
    flow = measured(tmp_path, kind="tcp", socket_buffer="64KiB")
    assert (flow.send_buffer_bytes, flow.receive_buffer_bytes) == (65536, 65536)
    with pytest.raises(
        ScenarioError, match="give socket_buffer, or send_buffer and receive_buffer, not both"
    ):
        measured(tmp_path, kind="tcp", socket_buffer="64KiB", send_buffer="16KiB")


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


def test_a_flow_of_kind_tcp(tmp_path: Path) -> None:
    flow = measured(
        tmp_path,
        kind="tcp",
        bytes="1MB",
        burst="64kB",
        every="40ms",
        no_delay=True,
        streams=2,
        duration="2500ms",
    )
    assert flow.bytes == 1_000_000
    assert flow.own == {"burst_bytes": "64000", "every_ns": "40000000", "no_delay": "true"}
    assert (flow.duration_ns, flow.streams, flow.rate_bps) == (2_500_000_000, 2, None)
    plain = measured(tmp_path, kind="tcp", rate="1mbit")
    assert (plain.bytes, plain.own, plain.rate_bps) == (None, None, 1_000_000)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"burst": "64kB"}, "burst and every belong together"),
        ({"every": "1s"}, "burst and every belong together"),
        ({"burst": "64kB", "every": "1s", "rate": "1mbit"}, "give rate, or burst and every, not both"),
        (
            {"bytes": "31B", "streams": 2},
            "bytes is 31 bytes: the data of each stream begins with a header of 16",
        ),
        ({"burst": "15B", "every": "1s"}, "burst is 15 bytes"),
        ({"no_delay": "yes"}, "no_delay"),
    ],
)
def test_a_flow_of_kind_tcp_is_refused(tmp_path: Path, keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        measured(tmp_path, kind="tcp", **keys)
