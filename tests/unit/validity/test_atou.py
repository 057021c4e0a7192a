from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from damage import Damage, edit_rows, events, removed, text

from dumbbell.execution.collect import collect
from dumbbell.metrics.values import values
from dumbbell.run.content import Run
from dumbbell.run.record import read_json, write_json

SENDER, RECEIVER = (
    "raw/sender1/measurement/atou-atou-sender.json",
    "raw/receiver1/measurement/atou-atou-receiver.json",
)


def test_a_run_of_atou(atou: Path) -> None:
    verdict = collect(atou, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    found = {(c.name, c.subject): c.measured for c in verdict.checks}
    asked = Run.open(atou).point.phase("measurement").flows[0]
    assert found["start", "atou"] == 60_000
    assert found["configuration", "atou sender"] == asked.sender
    assert found["configuration", "atou receiver"] == {"rcvbuf": "4000000"}
    assert found["transfer", "atou"] == 30 * 10**9 + 900
    assert found["samples missed", "atou sender"] == 0
    (row,) = pl.read_parquet(atou / "flows.parquet").filter(phase="measurement").iter_rows(named=True)
    assert row["goodput_bps"] == pytest.approx(95e6, rel=0.05)
    assert {"sender", "receiver"}.isdisjoint(row)
    known = values(atou)
    assert known.filter(metric="rtt", subject="atou")["value"].item() > 80e6
    assert {"goodput", "retransmits", "time_in_recovery", "utilisation"} < {*known["metric"]}


def test_a_trace_of_atou_is_a_table(atou: Path) -> None:
    plan = read_json(atou / "plan.json")
    (flow,) = plan["points"][0]["phases"][1]["flows"]
    flow["trace"] = True
    write_json(atou / "plan.json", plan)
    told = collect(atou, None)
    assert told.state == "invalid"
    assert any("atou: its trace cannot be read: " in reason for reason in told.reasons)
    (atou / "raw/sender1/measurement/atou-atou-trace.txt").write_text("0.1 1 xmt\n0.2 2 0.07 2 100 ack\n")
    collect(atou, None)
    (sent, acked) = pl.read_parquet(atou / "atou_trace.parquet").rows(named=True)
    assert (sent["flow"], sent["phase"], sent["kind"]) == ("atou", "measurement", "xmt")
    assert acked["t_ns"] - sent["t_ns"] == 100_000_000
    assert acked["rtt_ns"] == 70_000_000


UNLIKE_ATOU: dict[str, tuple[Damage, str]] = {
    "its end": (
        text(SENDER, '"elapsed_ns": 30000000900', '"elapsed_ns": 12000000000'),
        "atou: duration of the transfer is 12 s, asked 30 s ± 50 ms",
    ),
    "its report": (removed(SENDER), "atou: duration of the transfer not known: the sender left no report"),
    "a key": (
        text(SENDER, "rcvrwin 1000", "rcvrwin 300"),
        "atou sender: configuration of its sender: asked ",
    ),
    "the receiver": (
        text(SENDER, '"receiver_config": "port 5201\\nrcvbuf 4000000\\n"', '"error": "no report came"'),
        "atou receiver: configuration of its receiver not known: no report came",
    ),
    "lines": (
        text(SENDER, '"lost_lines": 0', '"lost_lines": 5'),
        "atou: number of lines of trace, events and",
    ),
    "drops": (
        text(RECEIVER, '"socket_drops": 0', '"socket_drops": 10000'),
        "atou receiver: share of segments that found the receiver's socket full is 20 %, more than 0",
    ),
    "drops of ACKs": (
        text(SENDER, '"socket_drops": 0', '"socket_drops": 10000'),
        "atou sender: share of ACKs that found the sender's socket full is 25 %, more than 0",
    ),
    "unsent ACKs": (
        text(RECEIVER, '"unsent_acks": 0', '"unsent_acks": 3000'),
        "atou receiver: share of ACKs that the receiver's host refused is 10 %, more than 0",
    ),
    "a line": (removed(RECEIVER), "the receiver told of 0 flows"),
    "samples": (
        lambda run_dir: edit_rows(
            run_dir, "sender1", "measurement", lambda row: row * ("tcp_info" not in row)
        ),
        "atou sender: share of its time in which it was not sampled not known",
    ),
    "its start": (
        events("sender1", "flow_first_data", error_ns=None, reason="no data within 2s of the planned start"),
        "atou: start error not known: no data within 2s of the planned start",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), UNLIKE_ATOU.values(), ids=UNLIKE_ATOU.keys())
def test_what_a_flow_of_atou_lacks_makes_a_run_invalid(atou: Path, damage: Damage, reason: str) -> None:
    damage(atou)
    verdict = collect(atou, None)
    assert verdict.state == "invalid"
    assert any(reason in found for found in verdict.reasons), verdict.reasons
