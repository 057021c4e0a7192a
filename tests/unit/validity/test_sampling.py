from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from damage import (
    Damage,
    assert_invalid,
    edit,
    edit_events,
    edit_rows,
    events,
    gap,
    reasons,
    removed,
    state,
    text,
)
from synthetic import REPOSITORY, write_run, write_spool

from dumbbell.execution.collect import collect
from dumbbell.run.record import read_json


def forget_t0(run_dir: Path) -> None:
    for file in run_dir.glob("raw/*/measurement/start.json"):
        file.unlink()


INVALID: dict[str, tuple[Damage, str]] = {
    "a spool of the calibration is missing": (
        removed("raw/sender1/calibration/spool.lp"),
        "sender1 calibration: the spool is missing",
    ),
    "samples were missed": (
        events("router", "sampler", missed=32),
        "router: share of samples missed is 10 %, more than 5 %",
    ),
    "the sampler said nothing": (
        events("router", "sampler", event="x"),
        "router: share of samples missed not known",
    ),
    "nobody knows whether final totals came": (
        events("sender1", "finals", event="x"),
        "sender1: final totals of its connections not known: the agent did not say which ends it saw",
    ),
    "the agent was killed": (
        events("router", "sampler", event="spool_mended"),
        "router: the agent was killed: its last row is of ",
    ),
    "a sender was not sampled for a while": (
        gap("sender1", "flow1", 10, 13),
        "flow1 sender: share of its time in which it was not sampled is 9.",
    ),
    "a receiver was not sampled to the end": (
        gap("receiver2", "flow2", 24.5, 99),
        "flow2 receiver: share of its time in which it was not sampled is 2",
    ),
    "a spool is damaged": (
        text("raw/sender1/measurement/spool.lp", "snd_cwnd=10i", "snd_cwnd=11i"),
        "sender1 measurement: batch 1 does not match its CRC",
    ),
    "a spool is missing": (
        removed("raw/receiver2/measurement/spool.lp"),
        "receiver2 measurement: the spool is missing",
    ),
    "t0 is not known": (
        forget_t0,
        "all flows: utilisation not known: goodput of flow1, flow2 was not sampled throughout",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), INVALID.values(), ids=INVALID.keys())
def test_each_validity_check_can_fail(run_dir: Path, damage: Damage, reason: str) -> None:
    damage(run_dir)
    assert_invalid(run_dir, reason)


def test_chrony_is_asked_of_every_host_that_follows_a_clock(run_dir: Path) -> None:
    edit_rows(run_dir, "sender1", "measurement", lambda row: row * ("source=chrony" not in row))
    assert_invalid(run_dir, "sender1 measurement: no rows of clock of chrony")
    state("sender1", lambda s: s["clock"].update(source="shared"))(run_dir)
    assert collect(run_dir, None).state == "passed"


@pytest.fixture(scope="session")
def _traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced")
    text = (REPOSITORY / "scenarios/two_flow_fairness.yml").read_text()
    (folder / "two_flow_fairness.yml").write_text(f"{text}\nsampling: {{trace: true, capture: true}}\n")
    write_run(folder / "run", folder / "two_flow_fairness.yml")
    return folder / "run"


@pytest.fixture
def traced(_traced: Path, tmp_path: Path) -> Path:
    """A run that asked for traces and captures, and has them; a test may damage it."""
    return Path(shutil.copytree(_traced, tmp_path / "traced"))


def test_a_traced_run(traced: Path) -> None:
    verdict = collect(traced, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    found = {(c.name, c.subject): c.measured for c in verdict.checks}
    assert found["source", "router"] == "trace"
    assert found["trace records lost", "sender1"] == 0
    assert found["connections traced", "flow1 sender1"] == found["connections traced", "flow1 receiver1"] == 1
    assert found["packets not captured", "router vec1"] == found["packets not captured", "router vec2"] == 0
    probes = pl.read_parquet(traced / "tcp_probe.parquet")
    assert probes.height == read_json(traced / "manifest.json")["rows"]["spooled"]["tcp_probe"] == 1100


def lacks(host: str, **event: str) -> Damage:
    """The agent of a host says that it cannot have something."""

    def change(run_dir: Path) -> None:
        with (run_dir / "raw" / host / "measurement/events.jsonl").open("a") as file:
            file.write(json.dumps({"unix_ns": 1, "event": "collector_unavailable"} | event) + "\n")

    return change


def untraced(run_dir: Path) -> None:
    """Flow 1 left no record where it arrives."""
    spool = run_dir / "raw/receiver1/measurement/spool.lp"
    rows = [row for row in spool.read_text().splitlines() if not row.startswith(("#", "tcp_probe"))]
    write_spool(spool, rows)


LACKING: dict[str, tuple[Damage, str]] = {
    "an event": (
        lacks("router", source="trace", name="skb/kfree_skb", reason="this kernel does not have it"),
        "router: trace not known: skb/kfree_skb: this kernel does not have it",
    ),
    "its report": (
        events("sender1", "trace", event="x"),
        "sender1: share of trace records lost not known: the agent did not report on its trace",
    ),
    "records": (
        events("receiver2", "trace", lost=100),
        "receiver2: share of trace records lost is 9.09 %, more than 5 %",
    ),
    "a connection": (untraced, "flow1 receiver1: 0 of 1 connections traced"),
    "packets": (
        text(
            "raw/router/measurement/events.jsonl",
            '"vec1", "packets": 9500, "dropped": 0',
            '"vec1", "packets": 9500, "dropped": 9500',
        ),
        "router vec1: share of packets that the capture lost is 50 %, more than 5 %",
    ),
    "the capture's report": (
        text("raw/router/measurement/events.jsonl", '"vec1", "packets"', '"vec3", "packets"'),
        "router vec1: share of packets that the capture lost not known: the agent did not report on it",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), LACKING.values(), ids=LACKING.keys())
def test_what_a_trace_lacks_makes_a_run_invalid(traced: Path, damage: Damage, reason: str) -> None:
    damage(traced)
    verdict = collect(traced, None)
    assert (verdict.state, reasons(verdict)) == ("invalid", [reason])


def counting(host: str) -> Damage:
    """The plan asks for eBPF on a host."""
    return lambda run_dir: edit(
        run_dir / "plan.json",
        lambda plan: plan["points"][0]["phases"][1]["hosts"][host]["sample"].update(ebpf=True),
    )


def test_counters_of_ebpf_are_there_or_the_run_is_invalid(run_dir: Path) -> None:
    counting("sender1")(run_dir)
    assert reasons(collect(run_dir, None)) == ["flow1 sender1: 0 of 1 connections counted by eBPF"]
    spool = run_dir / "raw/sender1/measurement/spool.lp"
    rows = [row for row in spool.read_text().splitlines() if not row.startswith("#")]
    write_spool(spool, [row.replace(",mono_ns=", ",segs_seen=7i,mono_ns=") for row in rows])
    assert reasons(collect(run_dir, None)) == []


def test_what_was_not_asked_for_may_be_lacking(run_dir: Path) -> None:
    lacks("router", source="trace", name="skb/kfree_skb", reason="this kernel does not have it")(run_dir)
    lacks("sender1", source="ebpf", name="ebpf", reason="the kernel does not describe its types")(run_dir)
    assert reasons(collect(run_dir, None)) == []
    counting("sender1")(run_dir)
    assert reasons(collect(run_dir, None)) == [
        "sender1: ebpf not known: the kernel does not describe its types"
    ]


def late_tick(run_dir: Path, missed: int) -> None:
    """The second row of a sampler comes when a tick is due that it has not sampled yet."""
    spool = run_dir / "raw/sender1/measurement/spool.lp"
    rows = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
    second = [i for i, row in enumerate(rows) if row.startswith("sampler,")][1]
    head, sampled, tail = rows[second].partition(",sampled=")
    ticks = int(head.rpartition("ticks=")[2][:-1]) + 1
    tail = re.sub(r"missed=\d+i", f"missed={missed}i", tail)
    rows[second] = f"{head.rpartition('ticks=')[0]}ticks={ticks}i{sampled}{tail}"
    write_spool(spool, rows)


@pytest.mark.parametrize(
    ("missed", "reasons"), [(1, []), (0, ["sampler: sampled and missed are not its ticks"])]
)
def test_a_tick_is_missed_until_it_is_sampled(run_dir: Path, missed: int, reasons: list[str]) -> None:
    late_tick(run_dir, missed)
    told = collect(run_dir, None).reasons
    assert [reason for reason in told if "sampler" in reason] == [
        f"sender1 measurement: {r}" for r in reasons
    ]


@pytest.mark.parametrize(("lead_s", "passes"), [(2.0, True), (0.5, True), (0.0, False)])
def test_a_calibration_is_sampled_from_half_a_second_before_it(
    run_dir: Path, lead_s: float, passes: bool
) -> None:
    """Older agents began two seconds before it."""
    phase = json.loads((run_dir / "plan.json").read_text())["points"][0]["phases"][0]
    ticks = round((phase["duration_ns"] / 1e9 + lead_s) * 1e9 / phase["sampling_interval_ns"])
    edit_events(
        run_dir / "raw/router/calibration/events.jsonl", "sampler", ticks=ticks, sampled=ticks, missed=0
    )
    told = collect(run_dir, None).reasons
    assert (not any("ticks, and the phase has" in reason for reason in told)) == passes
