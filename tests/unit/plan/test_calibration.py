from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

from dumbbell.plan import PingAction, Sample, plan
from plan.plans import SCENARIO, WAY, ipv6, only, planned, scenario


def test_calibration_pings_one_pair_after_the_other_then_fills_the_path() -> None:
    phase = planned().phase("calibration")
    pings = [a for h in phase.hosts.values() for a in h.actions if isinstance(a, PingAction)]
    pings.sort(key=lambda ping: ping.at_ns)
    assert [ping.name for ping in pings] == ["sender1-receiver1", "sender2-receiver2"]
    assert all(ping.count == 31 for ping in pings)
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


def test_datagrams_over_ipv6_are_not_fragmented(tmp_path: Path) -> None:
    flow = {"kind": "udp", "from": "senders[0]", "to": "receivers[0]", "rate": "1mbit"}
    (tmp_path / "x.yml").write_text(scenario({"flow": flow}, path={"forward": WAY}))
    (point,) = plan(tmp_path / "x.yml", ipv6()).points
    (load,), (own,) = (point.phase(phase).flows for phase in ("calibration", "measurement"))
    assert own.src == "fd00:1::11"
    assert (load.payload_bytes, own.payload_bytes) == (1452, 1452)
    assert load.rate_bps == math.ceil(110e6 * 1452 / 1514)


def test_without_a_path_its_rate_is_not_measured(tmp_path: Path) -> None:
    text = SCENARIO.read_text()
    text = text[: text.index("path:")] + text[text.index("hosts:") : text.index("expect:")]
    without = only(tmp_path, text)
    assert without.path is None
    calibration = without.phase("calibration")
    assert calibration.flows == []
    assert all(part.sample == Sample() for part in calibration.hosts.values())
