"""Metrics that expectations set bounds to, against the same numbers made another way."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from damage import edit, edit_rows, edit_spool
from mutations import opened
from synthetic import T0_UNIX_NS, write_run

from dumbbell import analysis
from dumbbell.facts.check import Check
from dumbbell.validity import verdict

S = 10**9
WINDOW = (10 * S, 20 * S)


def measured(run_dir: Path, metric: str, **asked: Any) -> list[Check]:
    """Checks of one expectation that nothing can meet, on both flows."""
    bound = {"metric": metric, "flows": ["flow1", "flow2"], "window_ns": WINDOW, "min": 1e15, "max": None}
    edit(run_dir / "plan.json", lambda plan: plan["points"][0].update(expect=[bound | asked]))
    return [check for check in verdict.asked(*opened(run_dir), None) if check.name == metric]


def samples(run_dir: Path, flow: str, side: str) -> pl.DataFrame:
    _, tables = opened(run_dir)
    return tables["tcp_info"].filter(phase="measurement", flow=flow, side=side).sort("t_ns")


def grown(rows: pl.DataFrame, column: str) -> float:
    """Growth of a counter in the window."""
    at_edges = np.interp(WINDOW, rows["t_ns"].to_numpy(), rows[column].to_numpy())
    return float(at_edges[1] - at_edges[0])


def test_goodput_of_each_flow(run_dir: Path) -> None:
    checks = measured(run_dir, "goodput")
    assert [(c.subject, c.kind, c.unit, c.ok) for c in checks] == [
        ("flow1", "expect", "bps", False),
        ("flow2", "expect", "bps", False),
    ]
    for check in checks:
        acked = grown(samples(run_dir, check.subject, "sender"), "bytes_acked")
        assert check.measured == pytest.approx(acked * 8 / 10, rel=0.01)  # in 10 s
    assert checks[0].reason.startswith("goodput is ")
    assert checks[0].reason.endswith("below 1\N{NARROW NO-BREAK SPACE}000\N{NARROW NO-BREAK SPACE}000 Gbit/s")


def test_percentiles_of_the_smoothed_rtt(run_dir: Path) -> None:
    for percentile in (0, 50, 95, 100):
        for check in measured(run_dir, "rtt", percentile=percentile):
            rows = samples(run_dir, check.subject, "sender").filter(pl.col("t_ns").is_between(*WINDOW))
            expected = np.percentile(rows["srtt_us"].to_numpy(), percentile)
            assert check.measured == pytest.approx(expected * 1000)
            assert check.unit == "ns"


def test_retransmits_are_a_share_of_the_segments_sent(run_dir: Path) -> None:
    for check in measured(run_dir, "retransmits"):
        rows = samples(run_dir, check.subject, "sender")
        again, sent = grown(rows, "total_retrans"), grown(rows, "data_segs_out")
        assert 0 < again < sent
        assert check.measured == pytest.approx(again / sent)


def test_a_counter_that_wraps(run_dir: Path) -> None:
    before = [check.measured for check in measured(run_dir, "retransmits")]
    edit_spool(run_dir, "sender1", "data_segs_out", lambda value: (value + 2**32 - 30_000) % 2**32)
    after = [check.measured for check in measured(run_dir, "retransmits")]
    assert after == pytest.approx(before)


def test_time_in_recovery(run_dir: Path) -> None:
    assert [check.measured for check in measured(run_dir, "time_in_recovery")] == [0, 0]
    edit_spool(run_dir, "sender1", "ca_state", lambda _: 3)
    edit_spool(run_dir, "sender2", "ca_state", lambda _: 4)
    assert [check.measured for check in measured(run_dir, "time_in_recovery")] == [1, 1]
    edit_spool(run_dir, "sender2", "ca_state", lambda _: 1)
    assert [check.measured for check in measured(run_dir, "time_in_recovery")] == [1, 0]


def test_a_metric_of_all_flows_or_of_some(run_dir: Path) -> None:
    (both,) = measured(run_dir, "utilisation")
    assert both.subject == "all flows"
    (one,) = measured(run_dir, "utilisation", flows=["flow1"])
    assert one.subject == "flow1"
    assert one.measured < both.measured < 0.957
    (alone,) = measured(run_dir, "jain_index", flows=["flow1"])
    assert alone.measured == 1


@pytest.mark.parametrize(
    ("window_s", "mean_mbps"), [((1, 5), 20), ((7, 11), 10), ((4, 8), 15), ((0, 12), 15)]
)
def test_utilisation_of_a_rate_that_changes(
    changing: Path, window_s: tuple[int, int], mean_mbps: float
) -> None:
    """20 Mbit/s until 6 s, then 10."""
    window = [second * S for second in window_s]
    flows = ["near", "far"]
    (used,) = measured(changing, "utilisation", window_ns=window, flows=flows)
    goodputs = [check.measured for check in measured(changing, "goodput", window_ns=window, flows=flows)]
    assert used.measured == pytest.approx(sum(goodputs) / (mean_mbps * 1e6))
    assert 0.5 < used.measured < 0.96


def pinged(run_dir: Path, count: int, interval_ns: int) -> Path:
    """Output of a ping that is planned beside the flows, from 5 s on."""
    action = {"at_ns": 5 * S, "kind": "ping", "name": "probe", "dst": "198.18.2.11"}
    probe = action | {"count": count, "interval_ns": interval_ns}
    edit(
        run_dir / "plan.json",
        lambda plan: plan["points"][0]["phases"][1]["hosts"]["sender1"]["actions"].append(probe),
    )
    return run_dir / "raw/sender1/measurement/ping-probe.txt"


def reply(number: int, sent_ns: int, rtt_ms: int, mark: str = "") -> str:
    """A line of ``ping -D``, of a request that was sent at a time since t0."""
    at_us = (T0_UNIX_NS["measurement"] + sent_ns) // 1000 + 1000 * rtt_ms
    at = f"{at_us // 10**6}.{at_us % 10**6:06d}"
    return f"[{at}] 64 bytes from 198.18.2.11: icmp_seq={number % 2**16} ttl=63 time={rtt_ms} ms{mark}\n"


def test_ping_beside_the_flows(run_dir: Path) -> None:
    file = pinged(run_dir, 200, S // 10)
    # The window of 10 to 20 s has the replies 51 to 150.
    file.write_text(
        "".join(
            reply(n, 5 * S + (n - 1) * S // 10, 30 if 50 < n <= 150 else 99, mark)
            for n in range(1, 201)
            for mark in ("", " (DUP!)")
        )
    )
    (check,) = measured(run_dir, "rtt", flows=["probe"], percentile=100)
    assert check.measured == 30_000_000
    file.unlink()
    (check,) = measured(run_dir, "rtt", flows=["probe"])
    assert (check.kind, check.reason) == ("validity", "rtt not known: there were no replies")


def test_echo_requests_are_placed_where_they_were_sent(run_dir: Path) -> None:
    """More of them than ping's number has values, and later than asked: 5 % of the interval each."""
    interval = S // 10_000
    sent = [5 * S + round(i * interval * 1.05) for i in range(140_000)]
    text = (reply(n, at, 30 if WINDOW[0] <= at < WINDOW[1] else 99) for n, at in enumerate(sent, 1))
    pinged(run_dir, 140_000, interval).write_text("".join(text))
    for percentile in (0, 100):
        (check,) = measured(run_dir, "rtt", flows=["probe"], percentile=percentile)
        assert check.measured == 30_000_000


def test_when_iperf3_had_written_all_is_no_completion_time(run_dir: Path) -> None:
    """Of older plans, which could ask iperf3 for a number of bytes."""
    edit(
        run_dir / "plan.json",
        lambda plan: plan["points"][0]["phases"][1]["flows"][0].update(bytes=5_000_000),
    )
    report = run_dir / "raw/sender1/measurement/iperf3-flow1-client.json"
    report.write_text(json.dumps({"end": {"sum_sent": {"bytes": 5_000_192, "seconds": 1.25}}}))
    (check,) = measured(run_dir, "completion_time", flows=["flow1"])
    reason = "completion_time not known: iperf3 tells when it had written all, not when all had arrived"
    assert (check.kind, check.measured, check.reason) == ("validity", None, reason)


def unsampled_from(run_dir: Path, until_s: float, *, ended: bool = False) -> None:
    """Take away the samples of flow1 after a time; its last row is then that of its end, if it ended."""
    for host in ("sender1", "receiver1"):
        until_ns = T0_UNIX_NS["measurement"] + round(until_s * S)

        def kept(row: str, until_ns: int = until_ns) -> str:
            if not row.startswith("tcp_info,flow=flow1,"):
                return row
            at_ns = int(row.rsplit(" ", 1)[1])
            last = ended and until_ns - at_ns < S // 10
            row = row.replace(" ", " final=true,", 1) if last else row
            return row if at_ns <= until_ns else ""

        edit_rows(run_dir, host, "measurement", kept)


@pytest.mark.parametrize("metric", ["goodput", "rtt", "retransmits", "time_in_recovery", "jain_index"])
def test_what_was_not_sampled_throughout_is_not_known(run_dir: Path, metric: str) -> None:
    """Also if samples are there for 97 % of a window, and the socket is not known to have ended."""
    unsampled_from(run_dir, 29.4)
    check = measured(run_dir, metric, window_ns=[10 * S, 30 * S])[0]
    assert (check.kind, check.measured, check.ok) == ("validity", None, False)
    assert check.reason.startswith(f"{metric} not known: ")
    assert measured(run_dir, metric, window_ns=[10 * S, 29 * S])[0].measured is not None


def test_a_flow_that_ended_early_delivered_nothing_after(run_dir: Path) -> None:
    received = samples(run_dir, "flow1", "receiver")
    unsampled_from(run_dir, 27.3, ended=True)  # at 91 %
    last = int(received.filter(pl.col("t_ns") <= 27.3 * S)["bytes_received"].to_numpy().max())
    (whole,) = measured(run_dir, "goodput", flows=["flow1"], window_ns=[0, 30 * S])
    assert whole.measured == pytest.approx(last * 8 / 30)
    (after,) = measured(run_dir, "goodput", flows=["flow1"], window_ns=[28 * S, 30 * S])
    assert after.measured == 0
    (rtt,) = measured(run_dir, "rtt", flows=["flow1"], window_ns=[0, 30 * S])
    assert (rtt.kind, rtt.measured) == ("validity", None)


def test_outside_of_its_life_a_flow_delivers_nothing(run_dir: Path) -> None:
    """flow2 runs from 5 to 30 s."""
    (inside,) = measured(run_dir, "goodput", flows=["flow2"], window_ns=[5 * S, 30 * S])
    (before,) = measured(run_dir, "goodput", flows=["flow2"], window_ns=[0, 5 * S])
    (longer,) = measured(run_dir, "goodput", flows=["flow2"], window_ns=[0, 50 * S])
    (after,) = measured(run_dir, "goodput", flows=["flow2"], window_ns=[31 * S, 40 * S])
    assert (before.measured, after.measured) == (0, 0)
    assert longer.measured == pytest.approx(inside.measured / 2)
    # What needs samples of it is of the part of the window in which it runs.
    for metric in ("rtt", "retransmits", "time_in_recovery"):
        own, wider = (
            measured(run_dir, metric, flows=["flow2"], window_ns=[start * S, 30 * S])[0] for start in (5, 0)
        )
        assert own.measured == wider.measured is not None
        (none,) = measured(run_dir, metric, flows=["flow2"], window_ns=[0, 5 * S])
        assert (none.kind, none.measured) == ("validity", None)


def test_datagrams_over_a_window_that_their_life_does_not_fill(tmp_path: Path) -> None:
    scenario = tmp_path / "late.yml"
    scenario.write_text(
        "name: late\ntitle: UDP in 10-20 s of 30\nduration: 30s\n"
        "path: {forward: {rate: 100mbit, delay: 10ms, queue: {kind: pfifo, limit: 1bdp}}}\n"
        "flows:\n  late: {kind: udp, from: 'senders[0]', to: 'receivers[0]', rate: 50mbit, start: 10s, "
        "duration: 10s}\n"
    )
    write_run(tmp_path / "run", scenario)
    for window, mbps in ((0, 5), 0), ((0, 30), 50 / 3), ((10, 20), 50), ((15, 30), 50 / 3):
        span = [second * S for second in window]
        (check,) = measured(tmp_path / "run", "goodput", flows=["late"], window_ns=span)
        assert check.measured == pytest.approx(mbps * 1e6, rel=0.01)


def test_loss_is_a_share_of_the_datagrams_of_the_window(tmp_path: Path) -> None:
    scenario = tmp_path / "late.yml"
    scenario.write_text(
        "name: late\ntitle: UDP in 10-20 s of 30\nduration: 30s\n"
        "path: {forward: {rate: 20mbit, delay: 10ms, queue: {kind: pfifo, limit: 1bdp}}}\n"
        "flows:\n  late: {kind: udp, from: 'senders[0]', to: 'receivers[0]', rate: 40mbit, start: 10s, "
        "duration: 10s}\n"
    )
    write_run(tmp_path / "run", scenario)

    def loss(*window: int) -> Any:
        asked = {"flows": ["late"], "window_ns": [second * S for second in window]}
        (check,) = measured(tmp_path / "run", "loss", **asked)
        return check.measured

    for window in (0, 30), (10, 20), (12, 14), (15, 30):  # 1514 bytes of a frame have 1472 of payload
        assert loss(*window) == pytest.approx(1 - 20 / 40 * 1472 / 1514, abs=0.001)
    assert loss(0, 5) is None

    def lost_at_15_s(row: str) -> str:
        before = int(row.rsplit(maxsplit=1)[-1]) < T0_UNIX_NS["measurement"] + 15 * S
        return re.sub(r"lost_packets=\d+", f"lost_packets={0 if before else 1000}", row)

    edit_rows(tmp_path / "run", "receiver1", "measurement", lost_at_15_s)
    got_in_2_s = 2 * 20e6 / (8 * 1514)
    assert loss(12, 14) == 0
    assert loss(14, 16) == pytest.approx(1000 / (1000 + got_in_2_s), rel=0.01)
    assert loss(17, 19) == 0


def test_percentiles() -> None:
    assert analysis.percentile(pl.Series([1.0, 2.0, 4.0]), 75) == 3
    assert analysis.percentile(pl.Series([], dtype=pl.Float64), 50) is None
