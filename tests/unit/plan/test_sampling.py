from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import inventory

from dumbbell.plan import describe, plan
from dumbbell.plan.actions import CaptureAction
from dumbbell.scenario import ScenarioError
from plan.plans import TCP, only, scenario


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
