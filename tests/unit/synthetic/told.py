"""What hosts of a made-up run tell beside its fluid model: all that those of a testbed do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell.facts import columns
from dumbbell.kinds.found.shared import MEMORY
from dumbbell.plan import Flow, Phase, PingAction
from dumbbell.plan.actions import CommandAction, FlowAction, PhaseHost
from dumbbell.validity.rows import of_flow

COOKIE = "a cookie of iperf3"
LEAD_NS = 2 * 10**9  # of samples before t0
MONO_NS = 10**12  # since boot at t0
MSS = 1448
KERNEL = (6, 12)  # of all hosts
Event = dict[str, Any]


def fields(values: dict[str, Any]) -> str:
    """Fields of a row in line protocol."""

    def said(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return (
            f'"{value}"' if isinstance(value, str) else f"{value}i" if isinstance(value, int) else str(value)
        )

    return ",".join(f"{name}={said(value)}" for name, value in values.items())


def filled(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """With 0 for each other name but those of times."""
    return dict.fromkeys((name for name in names if name not in ("unix_ns", "mono_ns")), 0) | values


def launched(phase: Phase, host: str, own: PhaseHost, t0: int) -> Iterator[Event]:
    """What an agent says until its flows begin."""
    yield {"unix_ns": t0 - 6 * 10**9, "event": "armed", "nice": -20}
    yield {"unix_ns": t0 - 6 * 10**9 + 10**8, "event": "start_received", "t0_unix_ns": t0}
    for flow in phase.flows:
        if flow.src_host == host:
            planned = {"flow": flow.name, "planned_unix_ns": t0 + flow.start_ns}
            yield {"unix_ns": t0 - 6 * 10**9 + 2 * 10**8, "event": "flow_planned"} | planned
    flows = {flow.name: flow for flow in phase.flows}
    for action in own.actions:
        if isinstance(action, FlowAction | CommandAction):
            at = (
                t0
                + action.at_ns
                - (4 * 10**9 if action.kind in ("iperf3_client", "atou_send", "tcp_send") else 0)
            )
            yield {"unix_ns": at, "event": "flow_launched", "flow": action.flow, "action": action.kind}
        if isinstance(action, FlowAction) and action.kind == "iperf3_client":
            yield held(flows[action.flow], t0)


def held(flow: Flow, t0: int) -> Event:
    """A client that was stopped before its first data."""
    greeting = {"bytes_sent": 37} if flow.kind == "iperf3_tcp" else {}
    event = {"unix_ns": t0 + flow.start_ns - 3 * 10**9, "event": "flow_held", "flow": flow.name, "held": True}
    return event | {"lead_ns": 3 * 10**9} | greeting


def write_iperf3(folder: Path, flow: Flow, host: str) -> None:
    """Reports of both ends of a flow of 10 Mbit/s, in intervals of a second."""
    seconds = flow.duration_ns / 1e9 + 0.002
    for end, side in ((flow.src_host, "client"), (flow.dst_host, "server")):
        if host != end:
            continue
        totals = [
            {"sum": {"start": i, "end": i + 1, "bytes": 1_250_000, "bits_per_second": 1e7}}
            for i in range(int(seconds))
        ]
        whole = {"seconds": seconds, "bytes": 1_250_000 * len(totals)}
        report = {
            "start": {"cookie": COOKIE, "test_start": {"num_streams": flow.streams, "tos": 0}},
            "intervals": totals,
            "end": {"sum_sent" if side == "client" else "sum_received": whole},
        }
        (folder / f"iperf3-{flow.name}-{side}.json").write_text(json.dumps(report))


def write_tcp(folder: Path, flow: Flow, side: str, sizes: list[int], start: int) -> None:
    """The report of one end of a flow of kind tcp, whose streams have transferred these bytes."""
    seconds = flow.duration_ns // 10**9
    total = sum(sizes)
    size = 2 * (flow.socket_buffer_bytes or 65536)
    options: dict[str, Any] = {
        "congestion_control": flow.congestion_control,
        "mss_bytes": (flow.mss_bytes or 1460) - 12,
    }
    options |= {"send_buffer_bytes": size, "receive_buffer_bytes": size, "dscp": flow.dscp or 0}
    options |= {"no_delay": "no_delay" in (flow.own or {}), "calls": seconds}
    times = {"first_unix_ns": start + 30_000, "last_unix_ns": start + flow.duration_ns + 40_000}
    if side == "sender":
        ends = [
            {"connected_unix_ns": start - 3 * 10**9, "bytes": own, "confirmed_bytes": own} for own in sizes
        ]
    else:
        times = {name: at + 10_000_000 for name, at in times.items()}
        ends = [{"bytes": own, "end_seen": True} for own in sizes]
    report = {
        "unix_ns": times["last_unix_ns"] + 20_000_000,
        "interval_bytes": [total // seconds] * (seconds - 1) + [total - total // seconds * (seconds - 1)],
        "streams": [options | times | end for end in ends],
    }
    report |= {"asked_bytes": flow.bytes or 0} if side == "sender" else {"foreign": 0}
    (folder / f"tcp-{flow.name}-{side}.json").write_text(json.dumps(report) + "\n")


def udp_report(flow: Flow, times: dict[str, int], sent_packets: int, delay_ns: int) -> tuple[Event, Event]:
    """What both ends of a flow of datagrams report, but for what became of them."""
    payload = flow.payload_bytes or 0
    bps = 8e9 * sent_packets * payload / flow.duration_ns
    sent = {
        "unix_ns": times["last_unix_ns"],
        **dict.fromkeys(("skipped_packets", "dropped_packets", "late_max_ns", "refusals", "too_large"), 0),
        **{"asked_packets": sent_packets, "sent_packets": sent_packets, "sent_bytes": payload * sent_packets},
        **{
            "asked_bps": float(flow.mean_rate_bps or 0),
            "sent_bps": bps,
            "batches": 100,
            "gso": True,
            "cpu_ns": 10**7,
        },
    }
    got = {
        "unix_ns": times["last_unix_ns"],
        **dict.fromkeys(("reordered_packets", "duplicate_packets", "stale_packets", "socket_drops"), 0),
        **{f"delay_{name}_ns": delay_ns for name in ("min", "mean", "max", "p50", "p90", "p99", "p999")},
        **{
            "kernel_stamps": True,
            "gro": True,
            "buffer_bytes": 33_554_432,
            "cpu_ns": 10**7,
            "foreign_packets": 0,
        },
    }
    return sent, got


def ping_end(ping: PingAction, times_ms: list[float]) -> list[str]:
    """The last lines of ping's output."""
    told = f"{ping.count} packets transmitted, {len(times_ms)} received"
    lost = f"{round(100 - 100 * len(times_ms) / ping.count)}% packet loss, time {ping.count * 50}ms"
    least, most, mean = min(times_ms), max(times_ms), sum(times_ms) / len(times_ms)
    return [
        "",
        f"--- {ping.dst} ping statistics ---",
        f"{told}, {lost}",
        f"rtt min/avg/max/mdev = {least:.3f}/{mean:.3f}/{most:.3f}/0.100 ms",
    ]


# --- rows -----------------------------------------------------------------------------------------


def rows(phase: Phase, host: str, common: str, t0: int, devices: list[str]) -> Iterator[str]:
    """What each agent samples of its host and of itself, each second."""
    interval, own = phase.sampling_interval_ns, phase.hosts[host]
    for second in range(-2, phase.duration_ns // 10**9 + 1):
        at = second * 10**9
        stamp = f"mono_ns={at + MONO_NS}i {t0 + at}"
        ticks = (at + LEAD_NS) // interval + 1
        kept = {
            "ticks": ticks,
            "sampled": ticks,
            "missed": 0,
            "achieved_interval_ns": interval,
            "late_max_ns": 100_000,
        }
        yield f"sampler,host={host},{common} {fields(kept)},{stamp}"
        if own.sample.link:
            for device in ["lo", *devices]:
                passed = {
                    name: 1000 * (second + 2) for name in ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes")
                }
                counts = fields(filled(passed, columns.LINK))
                yield f"link,dev={device},host={host},{common} {counts},{stamp}"
        if own.sample.snmp and second >= 0:
            grown = "delta=1000i,interval_ns=1000000000i," if second else ""
            yield f"snmp,host={host},name=IpInReceives,{common} total={1000 * second}i,{grown}{stamp}"
        if own.sample.trace and second == 0:
            yield f"trace,host={host},{common} records=1000i,lost=0i,{stamp}"
        if own.sample.clock:
            kernel, chrony = (asked.always for asked in columns.of_hosts() if asked.measurement == "clock")
            for source, names in (("kernel", kernel), ("chrony", chrony)):
                said = fields(filled({"synchronised": True}, names))
                yield f"clock,host={host},source={source},{common} {said},{stamp}"


def tcp_info(values: dict[str, Any], *, final: bool = False) -> dict[str, Any]:
    """All fields that the kernel has of a connection that is followed by its ports."""
    (asked, *_) = of_flow(_FLOW, "a", _PART)
    others = [name for since, names in asked.since.items() if since <= KERNEL for name in names]
    whole = filled(values, (*asked.always, *others))
    whole |= {"pacing_rate_Bps": 10**6, "min_rtt_us": 20_000} | {k: values[k] for k in values}
    whole |= {"bytes_retrans": MSS * whole["total_retrans"]}
    if final:
        return whole | {"final": True}
    return whole | dict.fromkeys(MEMORY, 0)


def atou(values: dict[str, Any]) -> dict[str, Any]:
    """All fields that atou's sender has of itself."""
    (asked,) = of_flow(_FLOW.model_copy(update={"kind": "atou"}), "a", _PART)
    names = tuple(
        name for name in (*asked.always, *asked.sometimes) if name not in ("congestion_control", "final")
    )
    return filled(values, names)


def cpu(values: dict[str, Any]) -> str:
    """What one core did."""
    (asked,) = (asked for asked in columns.of_hosts() if asked.measurement == "cpu_core")
    return fields(filled(values, asked.always))


def of_class(rate_bps: int) -> str:
    """What the class of a bottleneck counts."""
    return fields(filled({"rate_bps": rate_bps}, columns.of_class().always))


NETEM = "limit_packets=1000i,bytes=0i,backlog_bytes=0i,qlen_packets=0i,overlimits=0i,requeues=0i"
PROBE = dict.fromkeys(("snd_nxt", "snd_una", "snd_ssthresh", "snd_wnd", "srtt_us", "rcv_wnd"), 1)


def web100(last: dict[str, Any]) -> dict[str, int]:
    """All variables that every kernel tells exactly, of a connection by its last row."""
    made = pl.DataFrame([last]).select(of.alias(name) for name, of in columns.WEB100_OF.items())
    return filled(made.row(0, named=True), tuple(name for name in columns.WEB100 if name != "MaxRTT"))


_PART = PhaseHost.model_validate({"actions": [], "sample": {"tcp": ["x"]}})
_FLOW = Flow(
    name="x", kind="iperf3_tcp", direction="forward", src_host="a", dst_host="b", src="", dst="",
    server_port=1, client_port=1, streams=1, start_ns=0, duration_ns=1,
    congestion_control=None, rate_bps=None,
)  # fmt: skip
