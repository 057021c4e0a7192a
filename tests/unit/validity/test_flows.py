from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from damage import (
    Damage,
    assert_invalid,
    edit,
    edit_events,
    edit_rows,
    edit_spool,
    events,
    expectation,
    gap,
    lossy,
    reasons,
    removed,
    said,
    text,
    together,
    unanswered,
)
from synthetic import T0_UNIX_NS, ping_text

from dumbbell.execution.collect import collect
from dumbbell.plan.actions import PingAction


def flow1(**options: Any) -> Damage:
    """The plan asks for one thing more of flow1."""
    return lambda run_dir: edit(
        run_dir / "plan.json", lambda plan: plan["points"][0]["phases"][1]["flows"][0].update(options)
    )


def pinged(run_dir: Path) -> None:
    """A ping runs beside the flows, ten times a second."""
    action = {"at_ns": 0, "kind": "ping", "name": "rtt", "dst": "198.18.2.11", "count": 300}
    action["interval_ns"] = 100_000_000
    edit(
        run_dir / "plan.json",
        lambda plan: plan["points"][0]["phases"][1]["hosts"]["sender1"]["actions"].append(action),
    )
    replies = ping_text(PingAction.model_validate(action), 31.0, T0_UNIX_NS["measurement"])
    (run_dir / "raw/sender1/measurement/ping-rtt.txt").write_text(replies)


def option(**options: Any) -> Damage:
    """The plan asks for these options of flow1, whose sockets had the sizes and the DSCP below."""

    def change(run_dir: Path) -> None:
        flow1(**options)(run_dir)
        sizes = {"sock_bufsize": 65_536, "sndbuf_actual": 131_072, "rcvbuf_actual": 131_072}
        start = {"tcp_mss": 1448, **sizes, "test_start": {"tos": 46 << 2}}
        edit(run_dir / CLIENT, lambda report: report.update(start=start))

    return change


def paced(found_Bps: int | None, asked_bps: int) -> Damage:
    """Pacing asked of flow1, and the limit that the kernel reports for its socket, if it has one."""
    limit = "" if found_Bps is None else f"max_pacing_rate_Bps={found_Bps}i,"

    def change(run_dir: Path) -> None:
        flow1(pacing_bps=asked_bps)(run_dir)
        edit_rows(
            run_dir,
            "sender1",
            "measurement",
            lambda row: row.replace(",mono_ns=", f",{limit}mono_ns=") if row.startswith("tcp_info") else row,
        )

    return change


DATAGRAMS = "raw/receiver2/measurement/udp-flow2-receiver.json"
CLIENT = "raw/sender1/measurement/iperf3-flow1-client.json"


def udp_flow(sent_bps: float, **options: Any) -> Damage:
    """The second flow is one of datagrams, 2 Mbit/s but for its options, whose sender tells of a rate."""

    def change(run_dir: Path) -> None:
        kind = {"kind": "udp", "congestion_control": None, "rate_bps": 2_000_000, "payload_bytes": 1000}
        edit(
            run_dir / "plan.json",
            lambda plan: plan["points"][0]["phases"][1]["flows"][1].update(kind | options),
        )
        expectation("goodput", flows=["flow1"], min=1.0)(run_dir)
        sent = {"asked_bps": sent_bps, "sent_bps": sent_bps}
        (run_dir / "raw/sender2/measurement/udp-flow2-sender.json").write_text(json.dumps(sent))
        got = {"received_packets": 6_250, "lost_packets": 0, "end_seen": True, "foreign_packets": 0}
        (run_dir / DATAGRAMS).write_text(json.dumps(got))

    return change


def iperf3_udp(report: Mapping[str, Any], **options: Any) -> Damage:
    """The second flow is iperf3's of 4 Mbit/s in two streams, whose client left a report."""

    def change(run_dir: Path) -> None:
        udp_flow(0, kind="iperf3_udp", rate_bps=4_000_000, streams=2, **options)(run_dir)
        (run_dir / "raw/sender2/measurement/iperf3-flow2-client.json").write_text(json.dumps(report))

    return change


IPERF3_UDP: dict[str, Any] = {
    "start": {"sndbuf_actual": 131_072, "rcvbuf_actual": 131_072, "test_start": {"tos": 184}},
    "intervals": [{"sum": {"bytes": 500_000}}] * 25,
    "end": {"sum_sent": {"seconds": 25.0001}},
}
INVALID: dict[str, tuple[Damage, str]] = {
    "congestion control fell back": (
        events("sender2", "flow_congestion_control", name="reno"),
        "flow2: congestion control: asked cubic, found cubic, reno",
    ),
    "a ping beside the flows had few replies": (
        together(pinged, unanswered(80, "measurement/ping-rtt.txt")),
        "rtt: share of its echo requests that were answered is 73.3 %, asked at least 75 %",
    ),
    "a ping beside the flows left nothing": (
        together(pinged, removed("raw/sender1/measurement/ping-rtt.txt")),
        "rtt: share of its echo requests that were answered is 0, asked at least 75 %",
    ),
    "a flow started late": (
        events("sender1", "flow_first_data", error_ns=80_000_000),
        "flow1: start error is 80 ms, more than 50 ms",
    ),
    "no data of a flow arrived": (
        events("sender1", "flow_first_data", event="flow_none", error_ns=None),
        "flow1: start error not known: the agent saw no first data. Is TCP port 5201 of receiver1 open to "
        "sender1? playbooks/check.yml tries it and names the firewall",
    ),
    "the MSS differs": (option(mss_bytes=1400), "flow1: MSS: asked 1"),
    "the socket's buffer was capped": (option(socket_buffer_bytes=10**6), "flow1: send buffer: asked 2"),
    "the DSCP differs": (option(dscp=34), "flow1: DSCP: asked 34, found 46"),
    "a flow connected over another path": (
        lambda run_dir: edit_spool(run_dir, "sender1", "min_rtt_us", lambda _: 4_000),
        "flow1: it met an RTT of 4 ms before its start, and its path has 20 ms: it was connected over",
    ),
    "nobody knows over which path a flow connected": (
        lambda run_dir: edit_rows(
            run_dir, "sender1", "measurement", lambda row: re.sub(r"min_rtt_us=\d+i,", "", row)
        ),
        "flow1: the least RTT of its connections is not known: no sample has it after the start",
    ),
    "iperf3 left no report": (
        together(flow1(mss_bytes=1400), removed(CLIENT)),
        "flow1: MSS not known: iperf3 left no report",
    ),
    "nobody knows how long a flow ran": (
        removed(CLIENT),
        "flow1: time for which it sent not known: iperf3 left no report",
    ),
    "a flow ended early": (
        lambda run_dir: edit(run_dir / CLIENT, lambda r: r["end"]["sum_sent"].update(seconds=12.5)),
        "flow1: time for which it sent is 12.5 s, asked at least 30 s",
    ),
    "pacing is of another rate": (
        paced(90_000_000, asked_bps=800_000_000),
        "flow1: pacing is 720 Mbit/s, asked 800 Mbit/s ± 7 bit/s",
    ),
    "a flow was faster than its pacing": (
        paced(1_000_000, asked_bps=8_000_000),
        "flow1: rate at which it was paced is ",
    ),
    "a slow flow is not paced": (
        paced(None, asked_bps=800_000_000),
        "flow1: pacing not known: the kernel does not limit the sender's socket",
    ),
    "a paced flow was not sampled": (
        together(paced(None, asked_bps=800_000_000), gap("sender1", "flow1", -9, 99)),
        "flow1: pacing not known: its sender was not sampled",
    ),
    "an application sends less than the plan asks": (
        udp_flow(1_800_000),
        "flow2: rate sent is 1.8 Mbit/s, asked 2 Mbit/s ± 100",
    ),
    "an application sends without the plan's steps": (
        udp_flow(2_000_000, rate_steps=[{"at_ns": 5 * 10**9, "rate_bps": 1_000_000}]),
        "flow2: rate sent is 2 Mbit/s, asked 1.2 Mbit/s ± 60",
    ),
    "a sender of datagrams left no result": (
        together(udp_flow(2_000_000), removed("raw/sender2/measurement/udp-flow2-sender.json")),
        "flow2: rate sent not known: the sender left no result",
    ),
    "the last datagrams may be lost": (
        together(
            udp_flow(2_000_000),
            text(DATAGRAMS, '"end_seen": true', '"end_seen": false'),
        ),
        "flow2: end of its datagrams not known: no end marker came: what was lost at the end is not known",
    ),
    "iperf3 sends less over UDP than asked": (
        iperf3_udp(IPERF3_UDP | {"intervals": [{"sum": {"bytes": 400_000}}] * 25}),
        "flow2: rate sent is 3.2 Mbit/s, asked 4 Mbit/s ± 200",
    ),
    "iperf3 left no report of UDP": (iperf3_udp({}), "flow2: rate sent not known: iperf3 left no report"),
    "the DSCP of UDP differs": (iperf3_udp(IPERF3_UDP, dscp=34), "flow2: DSCP: asked 34, found 46"),
    "a flow's client failed": (
        said("sender1", "process_exit", flow="flow1", action="iperf3_client", code=1, stderr="no route"),
        "flow1: iperf3_client on sender1 ended with code 1: no route",
    ),
    "a flow failed while it connected": (
        together(
            events("sender1", "flow_first_data", error_ns=None, reason="no data within 2s"),
            said("sender1", "flow_held", flow="flow1", held=False, reason="the connection was not up"),
        ),
        "flow1: start error not known: the connection was not up; no data within 2s",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), INVALID.values(), ids=INVALID.keys())
def test_each_validity_check_can_fail(run_dir: Path, damage: Damage, reason: str) -> None:
    damage(run_dir)
    assert_invalid(run_dir, reason)


@pytest.mark.parametrize("loss", [0, 0.5])
def test_pings_beside_flows_may_lose_some(run_dir: Path, loss: float) -> None:
    together(lossy(loss=loss), pinged, unanswered(70 if loss == 0 else 180, "measurement/ping-rtt.txt"))(
        run_dir
    )
    (check,) = (check for check in collect(run_dir, None).checks if check.name == "ping replies")
    assert (check.requested, check.ok) == (0.75 * (1 - loss), True)


def test_options_as_asked_are_valid(run_dir: Path) -> None:
    option(mss_bytes=1448, socket_buffer_bytes=65_536, dscp=46)(run_dir)
    paced(10_000_000, asked_bps=80_000_007)(run_dir)
    verdict = collect(run_dir, None)
    assert reasons(verdict) == []
    assert {"MSS", "send buffer", "receive buffer", "DSCP", "pacing"} <= {c.name for c in verdict.checks}


def test_datagrams_as_planned_are_valid(run_dir: Path) -> None:
    changing_rate = [{"at_ns": 5 * 10**9, "rate_bps": 0}, {"at_ns": 10 * 10**9, "rate_bps": 4_000_000}]
    udp_flow(2_800_000, rate_steps=changing_rate)(run_dir)
    verdict = collect(run_dir, None)
    assert reasons(verdict) == []
    (rate,) = (check for check in verdict.checks if check.name == "rate sent")
    assert rate.requested == 2_800_000


def test_datagrams_of_iperf3_as_planned_are_valid(run_dir: Path) -> None:
    iperf3_udp(IPERF3_UDP, dscp=46, socket_buffer_bytes=65_536)(run_dir)
    verdict = collect(run_dir, None)
    assert reasons(verdict) == []
    found = {check.name for check in verdict.checks if check.subject == "flow2"}
    assert {"rate sent", "time sent", "DSCP", "send buffer", "receive buffer"} <= found


def test_a_flow_that_never_sent_says_so(run_dir: Path) -> None:
    edit_events(
        run_dir / "raw/sender1/measurement/events.jsonl",
        "flow_first_data",
        error_ns=None,
        reason="no data in 5 s",
    )
    edit_events(run_dir / "raw/sender1/measurement/events.jsonl", "flow_released", error_ns=None)
    assert reasons(collect(run_dir, None)) == ["flow1: start error not known: no data in 5 s"]
