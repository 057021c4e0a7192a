from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dumbbell.plan.actions import TcpListenAction, TcpPingAction
from plan.plans import TCP, WAY, S, only, scenario


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
