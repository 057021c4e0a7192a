"""Flows of kind tcp: what both ends report is compared with plan, other end and kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from damage import Damage, assert_invalid, edit, together
from synthetic import write_run

from dumbbell.execution.collect import collect
from dumbbell.kinds.found.tcp import asked_bytes
from dumbbell.plan import Flow

SCENARIO = """\
name: own
title: Two streams of the agent's own
duration: 4s
path:
  forward: {rate: 20mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}
flows:
  own:
    {kind: tcp, from: "senders[0]", to: "receivers[0]", streams: 2, socket_buffer: 64KiB, mss: 1400, dscp: ef}
"""
SENDER = "raw/sender1/measurement/tcp-own-sender.json"
RECEIVER = "raw/receiver1/measurement/tcp-own-receiver.json"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    scenario = tmp_path / "own.yml"
    scenario.write_text(SCENARIO)
    write_run(tmp_path / "run", scenario)
    return tmp_path / "run"


def stream(path: str, **changed: Any) -> Damage:
    """An end tells something else of its second stream; of a function, the value is computed."""

    def change(report: Any) -> None:
        own = report["streams"][1]
        own |= {key: value(own[key]) if callable(value) else value for key, value in changed.items()}

    return lambda run_dir: edit(run_dir / path, change)


def whole(path: str, **changed: Any) -> Damage:
    return lambda run_dir: edit(run_dir / path, lambda report: report.update(changed))


def planned(**keys: Any) -> Damage:
    """The plan asks for something else of the flow."""
    return lambda run_dir: edit(
        run_dir / "plan.json", lambda plan: plan["points"][0]["phases"][1]["flows"][0].update(keys)
    )


def less(by: int) -> Callable[[int], int]:
    return lambda value: value - by


def cut(run_dir: Path) -> None:
    """The receiver gave up while 1 kB of the second stream was under way."""
    together(
        stream(SENDER, confirmed_bytes=0),
        stream(RECEIVER, end_seen=False, bytes=less(1000)),
        lambda run_dir: edit(
            run_dir / RECEIVER,
            lambda report: report["interval_bytes"].__setitem__(0, report["interval_bytes"][0] - 1000),
        ),
    )(run_dir)


def test_a_good_run_passes(run_dir: Path) -> None:
    verdict = collect(run_dir, None)
    assert verdict.state == "passed", verdict.reasons
    counted = [check for check in verdict.checks if check.name == "bytes counted"]
    assert [check.measured - check.requested for check in counted] == [2]  # the ends of two streams
    intervals = pl.read_parquet(run_dir / "tcp_intervals.parquet")
    assert intervals.group_by("side").agg(pl.col("t_ns").max(), pl.len()).sort("side").rows() == [
        ("receiver", 3 * 10**9, 4),
        ("sender", 3 * 10**9, 4),
    ]
    sums = intervals.group_by("side").agg(pl.col("bytes").sum())["bytes"].unique()
    assert sums.to_list() == [counted[0].requested]


def test_a_flow_may_be_cut_while_data_is_under_way(run_dir: Path) -> None:
    cut(run_dir)
    verdict = collect(run_dir, None)
    assert verdict.state == "passed", verdict.reasons


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (
            stream(SENDER, last_unix_ns=less(2 * 10**9)),
            "own: time for which it sent is 2 s, asked at least 4 s",
        ),
        (stream(RECEIVER, dscp=0), "own receiver: DSCP: asked 46, found 0"),
        (stream(SENDER, no_delay=True), "own sender: no_delay: asked"),
        (stream(SENDER, send_buffer_bytes=65536), "own sender: send buffer: asked 131"),
        (stream(RECEIVER, mss_bytes=1448), "own receiver: MSS is"),
        (
            stream(RECEIVER, congestion_control="reno"),
            "own receiver: congestion control: asked cubic, found reno",
        ),
        (stream(RECEIVER, bytes=less(1000)), "what one end sent is not what the other has got"),
        (stream(SENDER, confirmed_bytes=less(1)), "what one end sent is not what the other has got"),
        (stream(SENDER, connected_unix_ns=less(10**10)), "its times are not those of the plan"),
        (whole(SENDER, asked_bytes=1), "the sender was not asked the plan's bytes"),
        (whole(SENDER, interval_bytes=[1]), "the sender's intervals do not have all of its bytes"),
        (
            whole(RECEIVER, interval_bytes=[0] * 100),
            "the receiver's intervals do not have all of its bytes",
        ),
        (whole(RECEIVER, foreign=1), "1 connections came that were none of its streams"),
        (
            whole(SENDER, streams=[]),
            "it has 0 of its sender and 2 of its receiver, and was asked 2 streams",
        ),
        (together(cut, stream(RECEIVER, bytes=less(-2000))), "what one end sent is not"),
        (
            planned(socket_buffer_bytes=None, own={"send_buffer_bytes": "16384"}),
            "own sender: send buffer: asked 32",
        ),
        (
            planned(socket_buffer_bytes=None, own={"receive_buffer_bytes": "16384"}),
            "own receiver: receive buffer: asked 32",
        ),
        (planned(bytes=5_000_000), "own: bytes that arrived before its end: asked"),
    ],
)
def test_each_check_can_fail(run_dir: Path, damage: Damage, reason: str) -> None:
    damage(run_dir)
    verdict = collect(run_dir, None)
    assert verdict.state == "invalid"
    assert any(reason in said for said in verdict.reasons), verdict.reasons


def test_a_report_is_missing(run_dir: Path) -> None:
    (run_dir / RECEIVER).unlink()
    verdict = collect(run_dir, None)
    assert verdict.state == "invalid"
    assert any("tcp-own-receiver.json is missing" in said for said in verdict.reasons), verdict.reasons


def test_the_kernel_counts_too(run_dir: Path) -> None:
    """Both ends tell of 1 MB more, which no kernel has seen."""
    for path in (SENDER, RECEIVER):
        stream(path, bytes=less(-(10**6)))(run_dir)
        edit(run_dir / path, lambda report: report["interval_bytes"].append(10**6))
    stream(SENDER, confirmed_bytes=less(-(10**6)))(run_dir)
    assert_invalid(run_dir, "own: the kernel counted")


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        ({}, 0),
        ({"bytes": 1000}, 1000),
        ({"rate_bps": 8_000_000}, 2_500_000),
        ({"rate_bps": 8_000_000, "bytes": 1000}, 1000),
        ({"own": {"burst_bytes": "1000", "every_ns": "1000000000"}}, 3000),
        ({"own": {"burst_bytes": "1000", "every_ns": "1000000000"}, "bytes": 5000}, 3000),
        ({"own": {"no_delay": "true"}}, 0),
    ],
)
def test_what_an_application_is_asked_to_write(keys: dict[str, Any], asked: int) -> None:
    flow = Flow(
        name="x", kind="tcp", direction="forward", src_host="a", dst_host="b", src="", dst="", server_port=1,
        client_port=1, streams=1, start_ns=0, duration_ns=2_500_000_000, congestion_control="cubic",
        rate_bps=keys.pop("rate_bps", None), **keys,
    )  # fmt: skip
    assert asked_bytes(flow) == asked
