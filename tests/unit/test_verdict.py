from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from synthetic import PATH_TRIM_US, RUN_ID, write_spool

from dumbbell.store import collect
from dumbbell.store.run import read_json, read_jsonl


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


def removed(path: str) -> Callable[[Path], None]:
    return lambda run_dir: (run_dir / path).unlink()


def text(path: str, old: str, new: str) -> Callable[[Path], None]:
    def change(run_dir: Path) -> None:
        before = (run_dir / path).read_text()
        assert old in before
        (run_dir / path).write_text(before.replace(old, new))

    return change


def expectation(metric: str, **bound: float) -> Callable[[Path], None]:
    """The scenario's expectations, but for this one bound on both flows where both run."""
    window = {"flows": ["flow1", "flow2"], "window_ns": [5 * 10**9, 30 * 10**9]}
    expected = [{"metric": metric, "min": None, "max": None} | window | bound]
    return lambda run_dir: edit(run_dir / "plan.json", lambda plan: plan["points"][0].update(expect=expected))


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
    spool = run_dir / "raw" / host / phase / "spool.lp"
    rows = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
    pattern = re.compile(rf"(?<=[ ,]{field}=)\d+")
    write_spool(spool, [pattern.sub(lambda n: str(change(int(n[0]))), row) for row in rows])


def test_a_run_in_which_all_went_as_asked(run_dir: Path) -> None:
    verdict = collect(run_dir, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    assert read_json(run_dir / "verdict.json") == verdict.model_dump()
    manifest = read_json(run_dir / "manifest.json")
    assert manifest["run"] == RUN_ID
    assert manifest["rows"] == {
        "spooled": {"tcp_info": 1100, "udp": 82, "qdisc": 1624},
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
    assert verdict.state == "passed"
    (rate,) = (check for check in verdict.checks if check.name == "rate, arriving")
    assert 0.99 * 100e6 < rate.measured < 100e6  # the queue's drain counts


def test_collecting_again_changes_nothing(run_dir: Path) -> None:
    def content() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in run_dir.iterdir() if file.is_file()}

    collect(run_dir, None)
    first = content()
    collect(run_dir, None)
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


def option(**options: Any) -> Callable[[Path], None]:
    """The same, of a flow whose sockets had other options, as iperf3 found them."""

    def change(run_dir: Path) -> None:
        flow1(**options)(run_dir)
        sizes = {"sock_bufsize": 65_536, "sndbuf_actual": 131_072, "rcvbuf_actual": 131_072}
        report = {"start": {"tcp_mss": 1448, **sizes, "test_start": {"tos": 46 << 2}}}
        (run_dir / "raw/sender1/measurement/iperf3-flow1-client.json").write_text(json.dumps(report))

    return change


def netem(drops: int) -> Callable[[Path], None]:
    """The router has a delay line, which drops this many packets between two samples."""

    def change(run_dir: Path) -> None:
        spool = run_dir / "raw/router/measurement/spool.lp"
        rows = [line for line in spool.read_text().splitlines() if not line.startswith("#")]
        lines = [row.replace("kind=htb", "kind=netem") for row in rows]
        late = len(rows) // 2
        lines[late:] = [
            re.sub(r"(?<=,drops=)\d+", str(drops), row) if "kind=netem" in row else row
            for row in lines[late:]
        ]
        early = [re.sub(r"(?<=,drops=)\d+", "0", r) if "kind=netem" in r else r for r in lines[:late]]
        write_spool(spool, early + lines[late:])

    return change


def paced(found_Bps: int, asked_bps: int) -> Callable[[Path], None]:
    """Pacing asked of flow1, and a rate that the kernel reports for it."""

    def change(run_dir: Path) -> None:
        flow1(pacing_bps=asked_bps)(run_dir)
        edit_spool(run_dir, "sender1", "pacing_rate_Bps", lambda _: found_Bps)

    return change


INVALID: dict[str, tuple[Callable[[Path], None], str]] = {
    "an agent failed": (
        text("raw/sender1/measurement/status.json", '"done", "reason": ""', '"failed", "reason": "no route"'),
        "sender1 measurement: the agent's measurement ended failed: no route",
    ),
    "an agent vanished": (
        removed("raw/receiver1/calibration/status.json"),
        "receiver1 calibration: the agent left no status of calibration",
    ),
    "congestion control fell back": (
        events("sender2", "flow_congestion_control", name="reno"),
        "flow2: congestion control: asked cubic, found cubic, reno",
    ),
    "offloads are on": (
        state("sender1", lambda s: s["nic"]["vec1"]["offloads"].update(tso=True)),
        "sender1 vec1: offloads: asked gro off, gso off, tso off, found gro off, gso off, tso on",
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
    "no ping": (
        removed("raw/sender2/calibration/ping-sender2-receiver2.txt"),
        "sender2-receiver2: idle RTT not known: 0 of 50 echo replies",
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
        events("router", "sampler", missed=30),
        "router: share of samples missed is 10 %, more than 5 %",
    ),
    "the sampler said nothing": (
        events("router", "sampler", event="x"),
        "router: share of samples missed not known",
    ),
    "another kernel runs": (
        asked("sender1", kernel="6.12.117"),
        "sender1: kernel: asked 6.12.117, found 6.12.0-synthetic",
    ),
    "a module's parameter was not read": (
        asked("sender1", modules={"tcp_bbr": {"fast": "Y"}}),
        "sender1: parameters of tcp_bbr not known",
    ),
    "the MTU differs": (
        asked("receiver1", mtu=9000),
        "receiver1 vec1: mtu: asked 9\N{NARROW NO-BREAK SPACE}000, found 1",
    ),
    "the qdisc was not read": (asked("sender2", qdisc="fq"), "sender2 vec1: qdisc not known"),
    "the MSS differs": (option(mss_bytes=1400), "flow1: MSS: asked 1"),
    "the socket's buffer was capped": (option(socket_buffer_bytes=10**6), "flow1: send buffer: asked 2"),
    "the DSCP differs": (option(dscp=34), "flow1: DSCP: asked 34, found 46"),
    "iperf3 left no report": (flow1(mss_bytes=1400), "flow1: MSS not known: iperf3 left no report"),
    "the kernel paces faster than asked": (
        paced(100_000_001, asked_bps=800_000_000),
        "flow1: pacing is 800 Mbit/s, asked 800 Mbit/s",
    ),
    "a delay line overflowed": (
        netem(drops=40),
        "router measurement: share of packets that a delay line dropped is ",
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


def test_drops_are_expected_where_loss_is(run_dir: Path) -> None:
    netem(drops=0)(run_dir)
    (check,) = (c for c in collect(run_dir, None).checks if c.name == "unexpected drops")
    assert (check.measured, check.ok) == (0, True)
    netem(drops=40)(run_dir)
    edit(run_dir / "plan.json", lambda plan: plan["points"][0]["path"]["forward"].update(loss=0.01))
    assert all(c.name != "unexpected drops" for c in collect(run_dir, None).checks)


def test_options_as_asked_are_valid(run_dir: Path) -> None:
    option(mss_bytes=1448, socket_buffer_bytes=65_536, dscp=46)(run_dir)
    paced(10_000_000, asked_bps=80_000_000)(run_dir)
    verdict = collect(run_dir, None)
    assert (verdict.state, verdict.reasons) == ("passed", [])
    assert {"MSS", "send buffer", "receive buffer", "DSCP", "pacing"} <= {c.name for c in verdict.checks}


def test_a_flow_that_never_sent_says_so(run_dir: Path) -> None:
    edit_events(
        run_dir / "raw/sender1/measurement/events.jsonl",
        "flow_first_data",
        error_ns=None,
        reason="no data in 5 s",
    )
    edit_events(run_dir / "raw/sender1/measurement/events.jsonl", "flow_released", error_ns=None)
    assert collect(run_dir, None).reasons == ["flow1: start error not known: no data in 5 s"]


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
