from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import PATH_TRIM_US, REPOSITORY, RUN_ID, T0_UNIX_NS, ping_text, write_run, write_spool

from dumbbell.execution.collect import collect
from dumbbell.metrics.values import values
from dumbbell.plan.actions import PingAction
from dumbbell.plan.path import Conditions, GilbertElliott, Queue
from dumbbell.run.content import Run
from dumbbell.run.directory import read_json, read_jsonl, write_json
from dumbbell.run.of_path import lost_chances, most_lost
from dumbbell.validity.rows import path_devices
from dumbbell.validity.verdict import Verdict

WHOLE = {  # checks of what is there at all, which have tests of their own
    *("state", "files", "t0", "agents of one version", "events", "replies", "reports", "rows", "covered"),
    *("drops elsewhere", "asked loss", "lost elsewhere"),
}


def reasons(verdict: Verdict) -> list[str]:
    """Why a run that a test has made another is not valid, but for what it then lacks beside that."""
    return [f"{c.subject}: {c.reason}" for c in verdict.checks if not c.ok and c.name not in WHOLE]


def edit(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def edit_events(path: Path, kind: str, **changed: Any) -> None:
    events = [e | (changed if e["event"] == kind else {}) for e in read_jsonl(path)]
    path.write_text("".join(json.dumps(e) + "\n" for e in events))


def state(host: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    return lambda run_dir: edit(run_dir / "raw" / host / "state.json", change)


def events(host: str, kind: str, **changed: Any) -> Callable[[Path], None]:
    return lambda run_dir: edit_events(run_dir / "raw" / host / "measurement/events.jsonl", kind, **changed)


def said(host: str, kind: str, **attributes: Any) -> Callable[[Path], None]:
    """The agent of a host tells of one thing more, before the flows begin."""

    def change(run_dir: Path) -> None:
        with (run_dir / "raw" / host / "measurement/events.jsonl").open("a") as file:
            file.write(
                json.dumps({"unix_ns": T0_UNIX_NS["measurement"] - 1, "event": kind} | attributes) + "\n"
            )

    return change


def together(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    def change_all(run_dir: Path) -> None:
        for change in changes:
            change(run_dir)

    return change_all


def removed(path: str) -> Callable[[Path], None]:
    return lambda run_dir: (run_dir / path).unlink()


def text(path: str, old: str, new: str) -> Callable[[Path], None]:
    def change(run_dir: Path) -> None:
        before = (run_dir / path).read_text()
        assert old in before
        (run_dir / path).write_text(before.replace(old, new))

    return change


def expectation(metric: str, **bound: Any) -> Callable[[Path], None]:
    """The scenario's expectations, but for this one bound on both flows where both run."""
    window = {"flows": ["flow1", "flow2"], "window_ns": [5 * 10**9, 30 * 10**9]}
    expected = [{"metric": metric, "min": None, "max": None} | window | bound]
    return lambda run_dir: edit(run_dir / "plan.json", lambda plan: plan["points"][0].update(expect=expected))


def routes(**options: bool) -> Callable[[Path], None]:
    """The one that the first sender has to the other side."""
    there = [{"to": "198.18.2.0/24", "via": "198.18.1.1"} | options]

    def change(found: Any) -> None:
        found["nic"]["vec1"].update(routes=there)
        found["owned"]["vec1 routes"] = [there, there]

    return state("sender1", change)


def gaps(run_dir: Path) -> None:
    """The first flow is of a congestion control that sets the gap after each packet."""
    edit(
        run_dir / "plan.json",
        lambda plan: plan["points"][0]["phases"][1]["flows"][0].update(congestion_control="rapid"),
    )


def forget_t0(run_dir: Path) -> None:
    for file in run_dir.glob("raw/*/measurement/start.json"):
        file.unlink()


def narrow(run_dir: Path) -> None:
    """The router's bottleneck lets 90 % of what was asked through."""
    edit_spool(run_dir, "router", "bytes", lambda sent: round(0.9 * sent), "calibration")


ARRIVED = "raw/receiver1/calibration/udp-calibration_rate-receiver.json"


def slow(run_dir: Path) -> None:
    """Of ten packets of the calibration, eight arrive."""
    edit(run_dir / ARRIVED, lambda r: r.update(received_packets=round(0.8 * r["received_packets"])))


def held_up(run_dir: Path) -> None:
    """The last packets of the calibration reach the receiver's program half a second late."""
    edit(run_dir / ARRIVED, lambda r: r.update(last_unix_ns=r["last_unix_ns"] + 500_000_000))


def edit_spool(
    run_dir: Path, host: str, field: str, change: Callable[[int], int], phase: str = "measurement"
) -> None:
    """Change an integer field in every row of a host's phase."""
    pattern = re.compile(rf"(?<=[ ,]{field}=)\d+")
    edit_rows(run_dir, host, phase, lambda row: pattern.sub(lambda n: str(change(int(n[0]))), row))


def edit_rows(run_dir: Path, host: str, phase: str, change: Callable[[str], str]) -> None:
    """Change the rows of a host's phase; what becomes empty is left out."""
    spool = run_dir / "raw" / host / phase / "spool.lp"
    rows = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
    write_spool(spool, filter(None, map(change, rows)))


def held(
    pattern: str, old: str, new: str, *, after_s: float = 0.0, phase: str = "measurement"
) -> Callable[[Path], None]:
    """What the router's samples say of a qdisc, from a time on."""

    def alter(run_dir: Path) -> None:
        spool = run_dir / "raw/router" / phase / "spool.lp"
        rows = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
        since = T0_UNIX_NS[phase] + after_s * 1e9
        found = [i for i, row in enumerate(rows) if pattern in row and int(row.split()[-1]) >= since]
        assert found
        for i in found:
            rows[i] = re.sub(old, new, rows[i])
        write_spool(spool, rows)

    return alter


def test_a_run_in_which_all_went_as_asked(run_dir: Path) -> None:
    verdict = collect(run_dir, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    assert read_json(run_dir / "verdict.json") == verdict.model_dump()
    manifest = read_json(run_dir / "manifest.json")
    assert manifest["run"] == RUN_ID
    assert manifest["rows"] == {
        "spooled": {
            "tcp_info": 1104,
            "udp": 82,
            "http_fetch": 0,
            "qdisc": 2560,
            "clock": 330,
            "cpu_core": 310,
            "link": 363,
            "sampler": 217,
            "snmp": 203,
            "tc_class": 812,
            "web100": 8,
        },
        "lost": 0,
        "influxdb": None,
    }
    assert {"subject", "name", "requested", "measured", "unit", "ok"} == {*manifest["facts"][0]}
    flows = pl.read_parquet(run_dir / "flows.parquet")
    assert flows["congestion_control_measured"].to_list() == [None, "cubic", "cubic"]
    tcp_info = pl.read_parquet(run_dir / "tcp_info.parquet")
    assert tcp_info["phase"].unique().to_list() == ["measurement"]
    assert tcp_info["t_ns"].min() == pytest.approx(0, abs=1e6)
    calibration = pl.read_parquet(run_dir / "udp.parquet")
    assert calibration["phase"].unique().to_list() == ["calibration"]
    # Each 100 ms of 4 s, at both ends, and what came after the end.
    assert calibration.group_by("side").len()["len"].to_list() == [41] * 2
    (rate,) = (check for check in verdict.checks if check.name == "rate")
    assert rate.measured == pytest.approx(100e6, rel=0.002)


def test_a_receiver_that_is_held_up_is_no_slow_path(run_dir: Path) -> None:
    held_up(run_dir)
    verdict = collect(run_dir, None)
    assert reasons(verdict) == []
    (rate,) = (check for check in verdict.checks if check.name == "rate, arriving")
    assert 0.99 * 100e6 < rate.measured < 100e6  # the queue's drain counts


def test_collecting_again_changes_nothing(run_dir: Path) -> None:
    def content() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in run_dir.iterdir() if file.is_file()}

    collect(run_dir, None, ["sender2 no longer answers"])
    first = content()
    assert collect(run_dir, None).reasons == ["run: sender2 no longer answers"]
    assert content() == first


def test_events_are_merged_in_order_of_time(run_dir: Path) -> None:
    collect(run_dir, None)
    merged = read_jsonl(run_dir / "events.jsonl")
    times = [event["unix_ns"] for event in merged]
    assert times == sorted(times)
    assert {"state", "flow_first_data", "sampler", "done"} <= {event["event"] for event in merged}
    assert {"router", "sender1"} <= {event.get("host") for event in merged}


def asked(host: str, **state: Any) -> Callable[[Path], None]:
    """The plan asks for one thing more of a host."""
    return lambda run_dir: edit(
        run_dir / "plan.json", lambda plan: plan["points"][0]["hosts"][host]["state"].update(state)
    )


def flow1(**options: Any) -> Callable[[Path], None]:
    """The plan asks for one thing more of flow1."""
    return lambda run_dir: edit(
        run_dir / "plan.json", lambda plan: plan["points"][0]["phases"][1]["flows"][0].update(options)
    )


def unanswered(count: int, ping: str = "calibration/ping-sender1-receiver1.txt") -> Callable[[Path], None]:
    """So many of the echo requests, from the tenth on, had no reply."""

    def change(run_dir: Path) -> None:
        file = run_dir / "raw/sender1" / ping
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:10] + lines[10 + count :]))

    return change


def lossy(**loss: Any) -> Callable[[Path], None]:
    """The path is asked, and was seen, to lose packets forward."""
    return together(
        lambda run_dir: edit(
            run_dir / "plan.json", lambda plan: plan["points"][0]["path"]["forward"].update(loss)
        ),
        state("router", lambda s: s["path"]["forward"].update(loss)),
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


def option(**options: Any) -> Callable[[Path], None]:
    """The same, of a flow whose sockets had other options, as iperf3 found them."""

    def change(run_dir: Path) -> None:
        flow1(**options)(run_dir)
        sizes = {"sock_bufsize": 65_536, "sndbuf_actual": 131_072, "rcvbuf_actual": 131_072}
        start = {"tcp_mss": 1448, **sizes, "test_start": {"tos": 46 << 2}}
        edit(run_dir / CLIENT, lambda report: report.update(start=start))

    return change


def netem(drops: int) -> Callable[[Path], None]:
    """The router's delay line forward drops this many packets between two samples."""
    return held("dev=vec2,handle=101:", "drops=0i", f"drops={drops}i", after_s=15)


def without_netem(phase: str) -> Callable[[Path], None]:
    """Nobody sampled the router's delay lines."""
    return lambda run_dir: edit_rows(run_dir, "router", phase, lambda row: row * ("kind=netem" not in row))


def paced(found_Bps: int | None, asked_bps: int) -> Callable[[Path], None]:
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


def udp_flow(sent_bps: float, **options: Any) -> Callable[[Path], None]:
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


def iperf3_udp(report: Mapping[str, Any], **options: Any) -> Callable[[Path], None]:
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


def gap(host: str, flow: str, since_s: float, until_s: float) -> Callable[[Path], None]:
    """One end of a flow was not sampled for a time."""
    start, end = (T0_UNIX_NS["measurement"] + round(1e9 * at) for at in (since_s, until_s))

    def left(row: str) -> str:
        out = row.startswith(f"tcp_info,flow={flow},") and start <= int(row.rsplit(maxsplit=1)[-1]) < end
        return "" if out else row

    return lambda run_dir: edit_rows(run_dir, host, "measurement", left)


INVALID: dict[str, tuple[Callable[[Path], None], str]] = {
    "an agent failed": (
        text("raw/sender1/measurement/status.json", '"done", "reason": ""', '"failed", "reason": "no route"'),
        "sender1 measurement: the agent's measurement ended failed: no route",
    ),
    "an agent vanished": (
        removed("raw/receiver1/calibration/status.json"),
        "receiver1 calibration: the agent left no status of calibration",
    ),
    "strangers were not counted": (
        events("receiver1", "strangers", event="x"),
        "receiver1 measurement: packets of strangers to its ports not known: the agent did not count them",
    ),
    "strangers could not be counted": (
        events("receiver1", "strangers", packets=None, reason="socket: operation not permitted"),
        "receiver1 measurement: packets of strangers to its ports not known: socket: operation not permitted",
    ),
    "what came was of no flow": (
        lambda run_dir: edit(
            run_dir / "raw/receiver1/calibration/udp-calibration_rate-receiver.json",
            lambda told: told.update(foreign_packets=10_000),
        ),
        "calibration_rate calibration: 10000 datagrams came that were not its own, of ",
    ),
    "strangers found a port open": (
        events("receiver1", "strangers", packets=3, first="TCP from 1.2.3.4:5", open=["flow1: why"]),
        "receiver1 measurement: 3 packets of strangers came, the first TCP from 1.2.3.4:5, "
        "and a port was open to them: flow1: why",
    ),
    "congestion control fell back": (
        events("sender2", "flow_congestion_control", name="reno"),
        "flow2: congestion control: asked cubic, found cubic, reno",
    ),
    "offloads are on": (
        state("sender1", lambda s: s["nic"]["vec1"]["offloads"].update(tso=True)),
        "sender1 vec1: offloads: asked gro off, gso off, lro off, tso off, found gro off, gso off, lro off, "
        "tso on",
    ),
    "txqueuelen differs": (
        state("router", lambda s: s["nic"]["vec2"].update(txqueuelen=500)),
        "router vec2: txqueuelen: asked 1\N{NARROW NO-BREAK SPACE}000, found 500",
    ),
    "a sysctl was not read": (
        state("receiver1", lambda s: s["sysctl"].clear()),
        "receiver1: net.ipv4.tcp_no_metrics_save not known: nothing was read back",
    ),
    "a sysctl differs": (
        state("receiver1", lambda s: s["sysctl"].update({"net.ipv4.tcp_no_metrics_save": "0"})),
        "receiver1: net.ipv4.tcp_no_metrics_save: asked 1, found 0",
    ),
    "a congestion control is not available": (
        state("sender1", lambda s: s["modules"].update(available=["reno"])),
        "sender1: congestion controls available: asked cubic, found none",
    ),
    "the state was not read": (
        removed("raw/sender1/state.json"),
        "sender1: state of the interfaces not known: nothing was read back",
    ),
    "the path differs": (
        state("router", lambda s: s["path"]["forward"]["queue"].update(limit_packets=1000)),
        "router forward: emulated path: asked ",
    ),
    "the path's own delay was taken off and not put back": (
        state("router", lambda s: s["path"].update(trim_us=0)),
        "router forward: emulated path: asked ",
    ),
    "the path's own delay was put back and not taken off": (
        state("router", lambda s: s["path"]["reverse"].update(delay_us=10_000)),
        "router reverse: emulated path: asked ",
    ),
    "the path was not read": (
        state("router", lambda s: s.update(path=None)),
        "router reverse: emulated path not known",
    ),
    "the RTT is off": (
        text("raw/sender1/calibration/ping-sender1-receiver1.txt", "time=20.", "time=25."),
        "sender1-receiver1: idle RTT is 25.1 ms, asked 20 ms ± 400 µs",
    ),
    "hosts are slow to answer": (
        text("raw/sender1/calibration/ping-sender1-receiver1.txt", "time=20.1", "time=23.1"),
        "sender1-receiver1: the median echo's wait beyond the quickest is 2.9 ms, more than 2 ms",
    ),
    "echoes that come twice": (
        text("raw/sender1/calibration/ping-sender1-receiver1.txt", "time=20.1 ms", "time=20.1 ms (DUP!)"),
        "sender1-receiver1: duplicate echo replies: asked 0, found ",
    ),
    "no ping": (
        removed("raw/sender2/calibration/ping-sender2-receiver2.txt"),
        "sender2-receiver2: idle RTT not known: 0 of 50 echo replies",
    ),
    "an echo was lost on a path that loses nothing": (
        unanswered(1),
        "sender1-receiver1: idle RTT not known: 49 of 50 echo replies, of which 50 had to come",
    ),
    "more echoes were lost than the path is asked to": (
        together(lossy(loss=0.02), unanswered(11)),
        "sender1-receiver1: idle RTT not known: 39 of 50 echo replies, of which 44 had to come",
    ),
    "a ping beside the flows had few replies": (
        together(pinged, unanswered(80, "measurement/ping-rtt.txt")),
        "rtt: share of its echo requests that were answered is 73.3 %, asked at least 75 %",
    ),
    "a ping beside the flows left nothing": (
        together(pinged, removed("raw/sender1/measurement/ping-rtt.txt")),
        "rtt: share of its echo requests that were answered is 0, asked at least 75 %",
    ),
    "the rate is off": (narrow, "sender1-receiver1: rate of the bottleneck is 90"),
    "behind the bottleneck it is slower": (
        slow,
        "sender1-receiver1: rate at which the path's packets arrive is 80 Mbit/s, asked 100 Mbit/s ",
    ),
    "the calibration never had a queue": (
        lambda run_dir: edit_spool(run_dir, "router", "backlog_bytes", lambda _: 0, "calibration"),
        "sender1-receiver1: rate of the bottleneck not known: no router was seen to have a queue",
    ),
    "no counts of the calibration": (
        removed(ARRIVED),
        "sender1-receiver1: rate at which the path's packets arrive not known: the ends of",
    ),
    "a spool of the calibration is missing": (
        removed("raw/sender1/calibration/spool.lp"),
        "sender1 calibration: the spool is missing",
    ),
    "a flow started late": (
        events("sender1", "flow_first_data", error_ns=80_000_000),
        "flow1: start error is 80 ms, more than 50 ms",
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
    "a core had no time left": (
        lambda run_dir: edit_spool(run_dir, "router", "idle_ms", lambda _: 0),
        "router: share of the time in which a core had no time left is 100 %, more than 10 %",
    ),
    "cores were not sampled": (
        lambda run_dir: edit_rows(
            run_dir, "router", "measurement", lambda row: re.sub("^cpu_core.*", "", row)
        ),
        "router: share of the time in which a core had no time left not known: its cores were not sampled",
    ),
    "the agent was killed": (
        events("router", "sampler", event="spool_mended"),
        "router: the agent was killed: its last row is of ",
    ),
    "another kernel runs": (
        asked("sender1", kernel="6.12.117"),
        "sender1: kernel: asked 6.12.117, found 6.12.0-synthetic",
    ),
    "a module is not loaded": (
        asked("sender1", modules={"tcp_bbr": {}}),
        "sender1: parameters of tcp_bbr not known",
    ),
    "a module's parameter differs": (
        asked("sender1", modules={"tcp_cubic": {"hystart": "0"}}),
        "sender1: parameters of tcp_cubic: asked hystart 0, found hystart 1",
    ),
    "a module's parameter was not read": (
        asked("sender1", modules={"tcp_cubic": {"gain": "3"}}),
        "sender1: parameters of tcp_cubic: asked gain 3, found none",
    ),
    "the MTU differs": (
        asked("receiver1", mtu=9000),
        "receiver1 vec1: mtu: asked 9\N{NARROW NO-BREAK SPACE}000, found 1",
    ),
    "the qdisc differs": (
        asked("sender2", qdisc="fq"),
        "sender2 vec1: qdisc: asked fq, found pfifo_fast",
    ),
    "the qdisc was not read": (
        together(asked("sender2", qdisc="fq"), state("sender2", lambda s: s["nic"]["vec1"].pop("qdisc"))),
        "sender2 vec1: qdisc not known",
    ),
    "fq takes the gaps of a flow": (
        together(gaps, state("sender1", lambda s: s["nic"]["vec1"].update(qdisc="fq"))),
        "sender1 vec1: qdisc: found fq; rapid (flow1) sets each gap itself, which fq overrules: ask "
        "pfifo_fast",
    ),
    "fq takes the gaps below mq": (
        together(gaps, state("sender1", lambda s: s["nic"]["vec1"].update(qdisc="mq", qdisc_leaves=["fq"]))),
        "sender1 vec1: qdisc: found fq, mq; rapid (flow1) sets each gap itself",
    ),
    "what is below mq was not read": (
        together(gaps, state("sender1", lambda s: s["nic"]["vec1"].update(qdisc="mq"))),
        "sender1 vec1: qdiscs below mq not known: nothing was read back",
    ),
    "the qdisc of gaps was not read": (
        together(gaps, state("sender1", lambda s: s["nic"]["vec1"].pop("qdisc"))),
        "sender1 vec1: qdisc not known: nothing was read back",
    ),
    "no interface of gaps was read": (
        together(gaps, state("sender1", lambda s: s.pop("nic"))),
        "sender1: qdisc not known: nothing was read back",
    ),
    "an option of a route differs": (
        together(asked("sender1", routes={"quickack": True, "tcp_usec_ts": True}), routes(quickack=True)),
        "sender1: options of the route to 198.18.2.0/24: asked quickack on, tcp_usec_ts on, found ",
    ),
    "the routes were not read": (
        asked("sender1", routes={"quickack": True}),
        "sender1: options of the routes to the other side not known",
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
        "flow1: time for which iperf3 sent not known: iperf3 left no report",
    ),
    "a flow ended early": (
        lambda run_dir: edit(run_dir / CLIENT, lambda r: r["end"]["sum_sent"].update(seconds=12.5)),
        "flow1: time for which iperf3 sent is 12.5 s, asked at least 30 s",
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
    "a sender was not sampled for a while": (
        gap("sender1", "flow1", 10, 13),
        "flow1 sender: share of its time in which it was not sampled is 9.",
    ),
    "a receiver was not sampled to the end": (
        gap("receiver2", "flow2", 24.5, 99),
        "flow2 receiver: share of its time in which it was not sampled is 2",
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
    "a delay line overflowed": (
        netem(drops=40),
        "router forward measurement: share of packets that a delay line dropped is ",
    ),
    "delay lines were not sampled": (
        without_netem("measurement"),
        "router reverse measurement: share of packets that a delay line dropped not known: it was not",
    ),
    "delay lines were not sampled while the path was calibrated": (
        without_netem("calibration"),
        "router forward calibration: share of packets that a delay line dropped not known: it was not",
    ),
    "nobody knows which the delay lines are": (
        state("router", lambda s: s["path"].pop("devices")),
        "router forward measurement: share of packets that a delay line dropped not known: ",
    ),
    "a clock is off": (
        state("sender2", lambda s: s["clock"].update(offset_ns=-49_000_000_000)),
        "sender2: clock offset is -49 s, more than 1 ms",
    ),
    "a clock may have drifted": (
        state("sender2", lambda s: s["clock"].update(root_dispersion_ns=2_500_000)),
        "sender2: clock root dispersion is 2.5 ms, more than 1 ms",
    ),
    "a clock is not synchronised": (
        state("sender2", lambda s: s["clock"].update(synchronised=False)),
        "sender2: clock offset not known: the clock is not synchronised",
    ),
    "a clock was set": (
        events("receiver1", "clock_watched", largest_step_ns=-5_000_000_000),
        "receiver1 measurement: largest step of the clock is -5 s, more than 1 ms",
    ),
    "nobody watched a clock": (
        events("receiver1", "clock_watched", event="x"),
        "receiver1 measurement: largest step of the clock not known",
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
}  # fmt: skip


@pytest.mark.parametrize(("damage", "reason"), INVALID.values(), ids=INVALID.keys())
def test_each_validity_check_can_fail(run_dir: Path, damage: Callable[[Path], None], reason: str) -> None:
    damage(run_dir)
    verdict = collect(run_dir, None)
    assert verdict.state == "invalid"
    assert any(said.startswith(reason) for said in verdict.reasons), verdict.reasons


@pytest.mark.parametrize(
    "loss",
    [{"loss": 0.02}, {"loss_gemodel": {"p": 0.01, "r": 0.3, "loss_bad": 1.0, "loss_good": 0.0}}],
    ids=["random", "in bursts"],
)
def test_echoes_may_be_lost_where_loss_is_asked(run_dir: Path, loss: dict[str, Any]) -> None:
    together(lossy(**loss), unanswered(4))(run_dir)
    assert not [r for r in collect(run_dir, None).reasons if "idle RTT" in r]


@pytest.mark.parametrize("loss", [0, 0.5])
def test_pings_beside_flows_may_lose_some(run_dir: Path, loss: float) -> None:
    together(lossy(loss=loss), pinged, unanswered(70 if loss == 0 else 180, "measurement/ping-rtt.txt"))(
        run_dir
    )
    (check,) = (check for check in collect(run_dir, None).checks if check.name == "ping replies")
    assert (check.requested, check.ok) == (0.75 * (1 - loss), True)


def conditions(loss: float, corrupt: float, bursts: tuple[float, float, float, float]) -> Conditions:
    names = ("p", "r", "loss_bad", "loss_good")
    return Conditions(
        rate_bps=1_000_000,
        delay_us=0,
        loss=loss,
        corrupt=corrupt,
        loss_gemodel=GilbertElliott(**dict(zip(names, bursts, strict=True))),
        queue=Queue(kind="pfifo", limit_packets=10),
    )


SHARE = st.floats(0, 1)


@given(SHARE, SHARE, st.tuples(SHARE, st.floats(0.01, 1), SHARE, SHARE), st.integers(1, 60))
def test_what_a_path_loses_on_average(
    loss: float, corrupt: float, bursts: tuple[float, float, float, float], packets: int
) -> None:
    way = conditions(loss, corrupt, bursts)
    chances = lost_chances(way, packets)
    assert sum(chances) == pytest.approx(1)
    mean = sum(number * chance for number, chance in enumerate(chances))
    assert mean == pytest.approx(packets * (1 - way.arriving), abs=1e-9)


@given(st.integers(1, 60), SHARE)
def test_what_a_path_loses_at_random_is_binomial(packets: int, loss: float) -> None:
    chances = lost_chances(conditions(loss, 0, (0, 1, 1, 0)), packets)
    expected = [math.comb(packets, k) * loss**k * (1 - loss) ** (packets - k) for k in range(packets + 1)]
    assert chances == pytest.approx(expected, abs=1e-9)


def test_bursts_may_take_more_than_single_losses() -> None:
    single, bursts = (conditions(0.02, 0, (0, 1, 1, 0)), conditions(0, 0, (0.002, 0.098, 1, 0)))
    assert single.arriving == pytest.approx(bursts.arriving)
    assert most_lost([single], 50) == 6
    assert most_lost([bursts], 50) > 20
    assert most_lost([single, single], 50) == 9
    assert most_lost([conditions(0, 0, (0, 1, 1, 0))], 50) == 0


def test_kernel_modules_and_qdisc_as_asked(run_dir: Path) -> None:
    wanted = {"kernel": "6.12.0-synthetic", "qdisc": "pfifo_fast"}
    asked("sender1", **wanted, modules={"tcp_cubic": {"hystart": "1", "fast": "1"}})(run_dir)
    owned = {f"{name} of tcp_cubic": ["1", "1"] for name in ("hystart", "fast")}
    state("sender1", lambda s: s["owned"].update(owned))(run_dir)
    verdict = collect(run_dir, None)
    assert verdict.state == "passed", verdict.reasons
    found = {check.name: check.measured for check in verdict.checks if check.subject.startswith("sender1")}
    assert wanted.items() <= found.items()
    assert found["module tcp_cubic"] == {"hystart": "1", "fast": "1"}


def test_strangers_that_were_kept_out_are_counted(run_dir: Path) -> None:
    came = {"packets": 10_000, "first": "TCP from 198.18.1.12:40000 to 198.18.2.11:5201"}
    events("receiver1", "strangers", **came)(run_dir)
    events("receiver2", "strangers", open=["flow2: why"])(run_dir)  # to which nobody came
    edit(
        run_dir / "raw/receiver1/calibration/udp-calibration_rate-receiver.json",
        lambda told: told.update(foreign_packets=5),
    )
    verdict = collect(run_dir, None)
    assert verdict.state == "passed"
    found = {c.subject: c.measured for c in verdict.checks if c.name == "strangers"}
    assert found == {
        "receiver1 calibration": 5,
        "receiver1 measurement": 10_000,
        "receiver2 measurement": 0,
    }


@pytest.mark.parametrize("found", [{}, {"qdisc": "mq", "qdisc_leaves": ["fq_codel"]}])
def test_gaps_are_a_flow_s_own_but_under_fq(run_dir: Path, found: dict[str, Any]) -> None:
    together(gaps, state("sender1", lambda s: s["nic"]["vec1"].update(found)))(run_dir)
    (check,) = (check for check in collect(run_dir, None).checks if check.name == "gaps")
    assert (check.subject, check.ok) == ("sender1 vec1", True)


def test_options_of_routes_as_asked(run_dir: Path) -> None:
    together(asked("sender1", routes={"quickack": True, "tcp_usec_ts": False}), routes(quickack=True))(
        run_dir
    )
    verdict = collect(run_dir, None)
    assert verdict.state == "passed", verdict.reasons
    (check,) = (check for check in verdict.checks if check.name == "route")
    assert check.measured == {"quickack": True, "tcp_usec_ts": False}


def drops(run_dir: Path) -> dict[str, Any]:
    return {c.subject: c.measured for c in collect(run_dir, None).checks if c.name == "unexpected drops"}


def test_drops_are_expected_where_loss_is(run_dir: Path) -> None:
    lines = ["router forward calibration", "router forward measurement"]
    lines += ["router reverse calibration", "router reverse measurement"]
    assert drops(run_dir) == dict.fromkeys(lines, 0)
    edit(run_dir / "plan.json", lambda plan: plan["points"][0]["path"]["forward"].update(loss=0.01))
    netem(drops=40)(run_dir)
    assert drops(run_dir) == dict.fromkeys(lines[2:], 0)


def test_a_path_without_delay_lines_has_no_drops_of_theirs(run_dir: Path) -> None:
    for phase in ("calibration", "measurement"):
        without_netem(phase)(run_dir)
    edit(
        run_dir / "plan.json", lambda plan: plan["points"][0]["path"]["forward"].update(delay_us=PATH_TRIM_US)
    )
    assert {*drops(run_dir)} == {"router reverse calibration", "router reverse measurement"}


def test_a_path_without_a_router_is_not_known(run_dir: Path) -> None:
    edit(run_dir / "plan.json", lambda plan: plan["points"][0]["hosts"]["router"].update(groups=["testbed"]))
    verdict = collect(run_dir, None)
    assert verdict.state == "invalid"
    assert "path: emulated path not known: no host of the plan is a router" in verdict.reasons


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


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (expectation("utilisation", max=0.5), "all flows: utilisation is 95.6 %, above 50 %"),
        (expectation("jain_index", min=0.999), "all flows: jain_index is "),
    ],
)
def test_a_valid_run_can_fail(run_dir: Path, change: Callable[[Path], None], reason: str) -> None:
    change(run_dir)
    verdict = collect(run_dir, None)
    assert verdict.state == "failed"
    assert verdict.reasons[0].startswith(reason)


def test_invalid_outranks_failed(run_dir: Path) -> None:
    expectation("jain_index", min=0.999)(run_dir)
    slow(run_dir)
    assert collect(run_dir, None).state == "invalid"


def test_a_run_without_raw_data_is_invalid_and_not_a_crash(run_dir: Path) -> None:
    (run_dir / "raw").rename(run_dir / "elsewhere")
    verdict = collect(run_dir, None)
    assert verdict.state == "invalid"
    assert not any(check.ok for check in verdict.checks if check.name in ("agent", "rate", "utilisation"))


@pytest.mark.parametrize(("trim_us", "valid"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
def test_tc_cuts_delays_to_whole_microseconds(run_dir: Path, trim_us: int, valid: bool) -> None:
    """What was taken off and what is left add up to what was asked, to 1 us."""
    state("router", lambda s: s["path"].update(trim_us=PATH_TRIM_US + trim_us))(run_dir)
    checks = [check for check in collect(run_dir, None).checks if check.name == "path"]
    assert [check.ok for check in checks] == [valid, valid]


# --- a path that changes, and flows with delays of their own ---------------------------------------


def change(name: str, /, **changed: Any) -> Callable[[Path], None]:
    """What the router's agent says of one change."""

    def alter(run_dir: Path) -> None:
        path = run_dir / "raw/router/measurement/events.jsonl"
        events = [e | (changed if e.get("name") == name else {}) for e in read_jsonl(path)]
        path.write_text("".join(json.dumps(e) + "\n" for e in events))

    return alter


def unsampled(run_dir: Path) -> None:
    """Of the second change on there are no samples."""
    spool = run_dir / "raw/router/measurement/spool.lp"
    rows = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
    write_spool(spool, [row for row in rows if int(row.split()[-1]) < T0_UNIX_NS["measurement"] + 9 * 10**9])


TCP_PROBE = "raw/sender2/calibration/tcp-ping-far.{}.json"
UDP_PROBE = "raw/receiver2/calibration/udp-datagrams.{}-receiver.json"


def answers(probe: str, change: Callable[[list[int]], list[int]]) -> Callable[[Path], None]:
    return lambda run_dir: edit(
        run_dir / TCP_PROBE.format(probe), lambda found: found.update(rtts_ns=change(found["rtts_ns"]))
    )


def datagrams(probe: str, **counts: int) -> Callable[[Path], None]:
    return lambda run_dir: edit(run_dir / UDP_PROBE.format(probe), lambda found: found.update(counts))


def last_socket(after_s: float) -> Callable[[Path], None]:
    """The last row of a sender is that of its socket's end, at a time since t0."""

    def alter(run_dir: Path) -> None:
        spool = run_dir / "raw/sender1/measurement/spool.lp"
        rows = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
        last = max(i for i, row in enumerate(rows) if row.startswith("tcp_info,"))
        fields = rows[last].rpartition(" ")[0].replace(",final=true", "")
        rows[last] = f"{fields},final=true {T0_UNIX_NS['measurement'] + round(after_s * 1e9)}"
        write_spool(spool, rows)

    return alter


CHANGING_INVALID: dict[str, tuple[Callable[[Path], None], str]] = {
    "a change was late": (
        change("forward-1", error_ns=560_000_000),
        "router forward from 6 s: time after which the path was as changed is 562 ms, more than 500 ms",
    ),
    "a change took long": (
        change("forward-2", took_ns=570_000_000),
        "router forward from 9 s: time after which the path was as changed is 571 ms, more than 500 ms",
    ),
    "a change failed": (
        change("forward-1", ok=False, reason="Command failed -:1"),
        "router forward from 6 s: time after which the path was as changed not known: Command failed -:1",
    ),
    "nobody knows of a change": (
        change("forward-2", name="forward-9"),
        "router forward from 9 s: time after which the path was as changed not known: the agent says nothing",
    ),
    "the rate stayed": (
        held("tc_class,", "rate_bps=10000000i", "rate_bps=20000000i"),
        "router forward from 6 s: emulated path: asked rate_bps 10",
    ),
    "the rate came back before its time": (
        held("tc_class,", "rate_bps=10000000i", "rate_bps=20000000i", after_s=8.5),
        "router forward from 6 s: emulated path: asked rate_bps 10",
    ),
    "the delay was changed for others alone": (
        held("parent=1:3", r"delay_ns=\d+i", "delay_ns=30000000i"),
        "router forward from 6 s: emulated path: asked rate_bps 10",
    ),
    "something loses packets": (
        held("kind=netem", "loss=0.0", "loss=0.01", after_s=9.5),
        "router forward from 9 s: emulated path: asked rate_bps 10",
    ),
    "something duplicates packets": (
        held("kind=netem", "duplicate=0", "duplicate=0.5", after_s=9.5),
        "router forward from 9 s: emulated path: asked rate_bps 10",
    ),
    "the queue has another limit": (
        held("kind=pfifo", "limit_packets=34i", "limit_packets=17i", after_s=9.5),
        "router forward from 9 s: emulated path: asked rate_bps 10",
    ),
    "the path came back while the flows ran": (
        events("router", "path_restored", unix_ns=T0_UNIX_NS["measurement"] + 11_950_000_000),
        "router: the path was restored at 11.95 s, while flows may still have met it: asked 12 s or later",
    ),
    "the path came back while a flow ended": (
        last_socket(19),
        "router: the path was restored at 13.22 s, while flows may still have met it: asked 19 s or later",
    ),
    "the path never came back": (
        events("router", "path_restored", event="nothing"),
        "router: when the path was restored is not known: the agent says nothing of it",
    ),
    "nobody looked": (
        unsampled,
        "router forward from 9 s: emulated path not known: the router's queues were not sampled",
    ),
    "nobody knows where the path is": (
        state("router", lambda s: s["path"].pop("devices")),
        "router forward from 6 s: emulated path not known: the router's queues were not sampled",
    ),
    "a filter is missing": (
        state("router", lambda s: s["path"]["forward"]["flows"].pop()),
        "router forward: emulated path: asked ",
    ),
    "a filter has another delay": (
        state("router", lambda s: s["path"]["forward"]["flows"][0].update(delay_us=20_000)),
        "router forward: emulated path: asked ",
    ),
    "a flow has no delay of its own": (
        answers("delayed", lambda rtts: [rtt - 30_000_000 for rtt in rtts]),
        "far tcp: idle RTT is 20.1 ms, asked 50 ms ± 5 ms",
    ),
    "others have it too": (
        answers("plain", lambda rtts: [rtt + 30_000_000 for rtt in rtts]),
        "far tcp: idle RTT is 20.1 ms, asked 50 ms ± 5 ms",
    ),
    "few answers": (
        answers("plain", lambda rtts: rtts[:50]),
        "far tcp: idle RTT not known: too few packets of the probes of its delay came through",
    ),
    "no probe of TCP": (removed(TCP_PROBE.format("delayed")), "far tcp: idle RTT not known: too few packets"),
    "a flow of datagrams has no delay of its own": (
        datagrams("delayed", delay_min_ns=9_300_000),
        "datagrams udp: idle RTT is 20.1 ms, asked 40 ms ± 4 ms",
    ),
    "few datagrams": (
        datagrams("delayed", received_packets=50, lost_packets=1),
        "datagrams udp: idle RTT not known: too few packets of the probes of its delay came through",
    ),
    "no probe of UDP": (removed(UDP_PROBE.format("plain")), "datagrams udp: idle RTT not known: too few"),
    "the pair has no idle RTT": (
        removed("raw/sender2/calibration/ping-sender2-receiver2.txt"),
        "far tcp: idle RTT not known: its pair has none",
    ),
}


def test_a_path_that_changed_as_asked(changing: Path) -> None:
    verdict = collect(changing, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    late = {check.subject: check.measured for check in verdict.checks if check.name == "path change"}
    assert late == {"router forward from 6 s": 3_000_000, "router forward from 9 s": 3_000_000}
    rtts = {check.subject: check.measured / 1e6 for check in verdict.checks if check.name == "idle RTT"}
    # Clocks of the two ends differ by 0.7 ms.
    expected = {"near tcp": 30.1, "far tcp": 50.1, "datagrams udp": 40.1}
    assert {name: rtts[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(("damage", "reason"), CHANGING_INVALID.values(), ids=CHANGING_INVALID.keys())
def test_each_check_of_changes_and_delays_can_fail(
    changing: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(changing)
    verdict = collect(changing, None)
    assert verdict.state == "invalid"
    assert any(said.startswith(reason) for said in verdict.reasons), verdict.reasons


def test_busy_hosts_make_no_delay(changing: Path) -> None:
    """All but one of the packets wait."""
    answers("delayed", lambda rtts: [rtts[0], *(rtt + 80_000_000 for rtt in rtts[1:])])(changing)
    assert collect(changing, None).state == "passed"


@pytest.mark.parametrize("phase", ["calibration", "measurement"])
def test_loss_that_comes_within_a_run_excuses_no_drop_before_it(changing: Path, phase: str) -> None:
    edit(
        changing / "plan.json",
        lambda plan: plan["points"][0]["path"]["forward"]["changes"][1].update(loss=0.05),
    )
    held("dev=vec2,handle=101:", "drops=0i", "drops=5i", after_s=9.5, phase=phase)(changing)
    found = drops(changing)
    assert (found["router forward calibration"] > 0) == (phase == "calibration")
    assert "router forward measurement" not in found
    assert found["router reverse measurement"] == 0


# --- sources that have to be asked for ------------------------------------------------------------


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


def lacks(host: str, **event: str) -> Callable[[Path], None]:
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


LACKING: dict[str, tuple[Callable[[Path], None], str]] = {
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
def test_what_a_trace_lacks_makes_a_run_invalid(
    traced: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(traced)
    verdict = collect(traced, None)
    assert (verdict.state, reasons(verdict)) == ("invalid", [reason])


def counting(host: str) -> Callable[[Path], None]:
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


# --- atou -----------------------------------------------------------------------------------------

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


UNLIKE_ATOU: dict[str, tuple[Callable[[Path], None], str]] = {
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
def test_what_a_flow_of_atou_lacks_makes_a_run_invalid(
    atou: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(atou)
    verdict = collect(atou, None)
    assert verdict.state == "invalid"
    assert any(reason in found for found in verdict.reasons), verdict.reasons


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


def moved(run_dir: Path, host: str, *names: str) -> None:
    """Counters of a host's stack that grew by 500 in the first second of the measurement."""
    spool, t0 = run_dir / f"raw/{host}/measurement/spool.lp", T0_UNIX_NS["measurement"]
    rows = [row for row in spool.read_text().splitlines() if not row.startswith("#")]
    tags = next(row for row in rows if row.startswith("snmp,")).split()[0]
    for name in names:
        own = re.sub(r"name=\w+", f"name={name}", tags)
        rows.append(f"{own} total=5i,mono_ns={10**12}i {t0}")
        grown = "delta=500i,interval_ns=1000000000i"
        rows.append(f"{own} total=505i,{grown},mono_ns={10**12 + 10**9}i {t0 + 10**9}")
    write_spool(spool, rows)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["TcpInErrs"], ["receiver1: TcpInErrs grew by 500"]),
        (["TcpInErrs", "TcpExtTCPSYNChallenge"], []),  # a SYN-ACK that was sent again
    ],
)
def test_what_tcp_refuses_is_an_error_unless_it_is_challenged(
    run_dir: Path, names: list[str], told: list[str]
) -> None:
    moved(run_dir, "receiver1", *names)
    assert collect(run_dir, None).reasons == told


def test_a_router_without_a_path_has_no_interfaces_of_one() -> None:
    """It was asked for samples of them, and every run without a path was invalid."""
    ways = {way: {"bottleneck": f"ifb_{way}", "delay_line": "vec1"} for way in ("forward", "reverse")}
    path = {"devices": ways, "forward": None, "reverse": None}
    assert path_devices({"path": path}) == set()
    assert path_devices({"path": path | {"forward": {}}}) == {"ifb_forward", "vec1"}
    assert path_devices({"path": None}) == path_devices(None) == set()
