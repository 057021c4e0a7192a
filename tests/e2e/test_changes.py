"""A path that changes within a run, and flows with delays of their own, in the virtual lab."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from lab import Lab
from runs import CLOSE, MS, Finished, S, run_in_time

from dumbbell import analysis
from playbooks import ansible_playbook

pytestmark = pytest.mark.e2e

SCENARIO = Path(__file__).with_name("changing_path.yml")
RATE_FALLS_NS, DELAY_GROWS_NS = 6 * S, 9 * S
RTT_TOLERANCE, TOLERANCE_NS = 0.1, 500 * MS  # of its validity
RTT_MS = {"near": 30, "far": 50}  # 20 ms of the path, and their own


@pytest.fixture(scope="module")
def changed(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run_in_time(SCENARIO, tmp_path_factory.mktemp("changing"))


def sampled(changed: Finished, table: str, device: str, kind: str) -> pl.DataFrame:
    """What the router's samples of the measurement say of qdiscs of a kind, in order of time."""
    rows = changed.table(table)
    return rows.filter(phase="measurement", host="router", dev=device, kind=kind).sort("t_ns")


def test_the_run_passes(changed: Finished) -> None:
    verdict = changed.json("verdict.json")
    assert (verdict["state"], verdict["reasons"]) == ("passed", []), changed.output[-4000:]
    late = changed.facts("path change")
    assert sorted(late) == ["router forward from 6 s", "router forward from 9 s"]
    assert all(0 <= ns <= TOLERANCE_NS for ns in late.values())


def test_the_rate_falls_at_its_time_in_the_samples_of_the_bottleneck(changed: Finished) -> None:
    rates = sampled(changed, "tc_class", "ifb_fwd", "htb")
    before = rates.filter(pl.col("t_ns") < RATE_FALLS_NS)
    after = rates.filter(pl.col("t_ns") >= RATE_FALLS_NS + TOLERANCE_NS)
    assert before.height > 50
    assert after.height > 50
    assert before["rate_bps"].unique().to_list() == [20_000_000]
    assert after["rate_bps"].unique().to_list() == [10_000_000]
    # So does what it served, while two flows kept it busy.
    queue = sampled(changed, "qdisc", "ifb_fwd", "pfifo").rename({"bytes": "total"})
    counted = queue.select(flow=pl.lit("all"), stream=pl.lit("0"), t_ns="t_ns", bytes="total")
    fast, slow = (
        analysis.mean_goodput(counted, start, end)["all"] for start, end in ((2 * S, 6 * S), (7 * S, 11 * S))
    )
    assert 0 < slow < 1.02 * 10_000_000 < fast < 1.02 * 20_000_000


def test_the_rate_falls_in_the_goodput(changed: Finished) -> None:
    counted = analysis.counters(changed.tcp_info.filter(phase="measurement"))
    fast, slow = (
        sum(analysis.mean_goodput(counted, start, end).values())
        for start, end in ((2 * S, 6 * S), (7 * S, 11 * S))
    )
    assert 0 < slow < 10_000_000
    assert slow < fast < 20_000_000


def test_the_delay_grows_for_all(changed: Finished) -> None:
    netems = sampled(changed, "qdisc", "vec2", "netem")
    for rows in netems.partition_by("parent"):
        before = rows.filter(pl.col("t_ns") < DELAY_GROWS_NS)["delay_ns"].unique().to_list()
        after = rows.filter(pl.col("t_ns") >= DELAY_GROWS_NS + TOLERANCE_NS)["delay_ns"].unique().to_list()
        assert [len(before), len(after)] == [1, 1]
        assert after[0] - before[0] == pytest.approx(10 * MS, abs=1000)
    assert netems["parent"].n_unique() == 4  # the path's delay, and with each of three more


def test_each_flow_has_its_rtt(changed: Finished) -> None:
    idle = changed.facts("idle RTT")
    for flow, rtt_ms in RTT_MS.items():
        assert idle[f"{flow} tcp"] == pytest.approx(rtt_ms * MS, rel=RTT_TOLERANCE)
        own = changed.tcp_info.filter(
            (pl.col("flow") == flow) & (pl.col("side") == "sender") & (pl.col("state") != CLOSE)
        )
        assert (own["min_rtt_us"] >= (1 - RTT_TOLERANCE) * rtt_ms * 1000).all()
    assert idle["datagrams udp"] == pytest.approx(40 * MS, rel=RTT_TOLERANCE)
    arrived = changed.json("raw/receiver2/measurement/udp-datagrams-receiver.json")
    assert arrived["delay_min_ns"] == pytest.approx(30 * MS, abs=10 * MS)  # clocks may differ


def test_the_path_is_given_back_as_the_inventory_has_it(changed: Finished, lab: Lab) -> None:
    events = [json.loads(line) for line in (changed.dir / "events.jsonl").read_text().splitlines()]
    assert [event["ok"] for event in events if event["event"] == "path_restored"] == [True]
    said = lab.ssh("router", "tc class show dev ifb_fwd; tc qdisc show dev vec2")
    assert "rate 100Mbit" in said
    assert re.findall(r" delay ([0-9.]+ms)", said) == ["10ms"]


def test_provisioning_after_a_run_changes_nothing(changed: Finished) -> None:
    code, said = ansible_playbook("playbooks/provision.yml", timeout_s=600)
    assert code == 0, said[-4000:]
    recap = said.partition("PLAY RECAP")[2]
    assert set(re.findall(r"changed=(\d+)", recap)) == {"0"}, recap
