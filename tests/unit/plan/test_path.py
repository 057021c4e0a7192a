from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dumbbell.plan import Direction
from dumbbell.plan.order import ordered_delay_us
from dumbbell.plan.path import PACKET_BYTES, Conditions, Queue
from dumbbell.plan.resolve import resolve_path
from dumbbell.scenario import NetworkPath, ScenarioError
from plan.plans import SCENARIO, TCP, WAY, changing, only, planned, scenario


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


def test_a_policer_and_a_burst_are_planned(tmp_path: Path) -> None:
    policed = WAY | {"burst": "1MB", "policer": {"rate": "15mbit", "burst": "10kB"}}
    point = changing(tmp_path, {"at": "5s", "policer": {"rate": "20mbit", "burst": "20kB"}}, forward=policed)
    assert point.path is not None
    way = point.path.forward
    assert [state.policer and state.policer.model_dump() for _, state in way.states] == [
        {"rate_bps": 15_000_000, "burst_bytes": 10_000},
        {"rate_bps": 20_000_000, "burst_bytes": 20_000},
    ]
    assert [state.burst_bytes for _, state in way.states] == [10**6, 10**6]
    assert way.mean_rate_bps(0, 10 * 10**9) == 17_500_000  # of what passes
    assert (way.capacity_bps, way.rate_bps) == (15_000_000, 100_000_000)
    assert way.passing_bps(4 * 10**9) == 15_020_000
    assert way.passing_bps(10**6) == 95_000_000
    assert "policer" not in json.loads(point.model_dump_json())["path"]["reverse"]


def test_the_calibration_empties_the_bottlenecks_bucket(tmp_path: Path) -> None:
    point = changing(tmp_path, forward=WAY | {"burst": "25MB"})
    assert point.path is not None
    way = point.path.forward
    (load,) = (flow for flow in point.phase("calibration").flows if flow.direction == "forward")
    assert load.rate_bps
    assert load.payload_bytes
    offered_bps = load.rate_bps / load.payload_bytes * point.path.packet_bytes
    assert offered_bps == pytest.approx(1.1 * 100e6 + 8 * 25e6 / 2)  # after 2 s there is a queue
    assert way.passing_bps(load.duration_ns) == 100e6 + 8 * 25e6 / 4


@pytest.mark.parametrize(
    ("slot", "wait_us"),
    [("4ms", 4000), ("9.999ms", 9999), ("10ms", 0), ("25ms", 15_000)],  # the delay is 10 ms
)
def test_slots_make_an_idle_round_trip_longer(tmp_path: Path, slot: str, wait_us: int) -> None:
    point = changing(tmp_path, {"at": "5s", "rate": "50mbit"}, reverse=WAY | {"slot": slot})
    assert point.path is not None
    us = round(float(slot.removesuffix("ms")) * 1000)
    assert json.loads(point.model_dump_json())["path"]["reverse"]["slot"] == {"min_us": us, "max_us": us}
    assert point.path.reverse.slot_wait_us == wait_us
    assert point.path.idle_rtt_ns - point.path.rtt_ns == 1000 * wait_us
    assert "slot_wait_ns" not in json.loads(changing(tmp_path).model_dump_json())["path"]


def test_a_flow_has_no_delay_of_its_own_beside_slots(tmp_path: Path) -> None:
    text = scenario({"flow": TCP | {"delay": "1ms"}}, path={"forward": WAY | {"slot": "2ms"}})
    with pytest.raises(ScenarioError, match="packets of all flows leave in the same slots"):
        only(tmp_path, text)


@pytest.mark.parametrize(
    ("policer", "reason"),
    [
        ({"rate": "100mbit", "burst": "10kB"}, "the policer of 100mbit drops nothing"),
        (
            {"rate": "15mbit", "burst": "1517B"},
            "1517 bytes, .* may not hold a packet of 1514 .*: give 1518B or more",
        ),
    ],
)
def test_a_policer_that_has_no_effect_or_passes_nothing(tmp_path: Path, policer: Any, reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        changing(tmp_path, forward=WAY | {"policer": policer})


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
    rng, n = np.random.default_rng(seed), 2_000 * max(100, mbps)  # at least 1 000 jitters long
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
    first, second = (warned.text for warned in point.warnings if warned.id == "order_kept")
    assert first.startswith("path.forward: keep_order holds packets back behind those with longer delays: at")
    assert "the mean delay is about 75.5 ms, asked are 50 ms" in first
    assert second.startswith("path.forward from 2 s: keep_order")
    unordered = changing(tmp_path, {"at": "2s", "jitter": "1ms"}, forward=WAY | jitter, reverse=WAY)
    assert {warned.id for warned in unordered.warnings} == {"jitter_reorders"}


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
