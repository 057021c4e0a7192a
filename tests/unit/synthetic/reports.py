"""What the programs of flows and pings leave, and the events of flows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dumbbell.plan import Flow, Phase, PingAction, Point
from dumbbell.plan.actions import PhaseHost, TcpPingAction
from synthetic import told
from synthetic.constants import T0_UNIX_NS
from synthetic.fluid import PACKET_BITS, Fluid, received_bytes, sent_bits

CLOCK_OFFSET_NS = -700_000  # of receivers against senders


def flows_told(
    folder: Path, planned: Point, phase: Phase, host: str, *, fluid: Fluid | None
) -> list[dict[str, Any]]:
    """Events of flows, and what their programs leave."""
    events: list[dict[str, Any]] = []
    t0 = T0_UNIX_NS[phase.phase]
    for flow in phase.flows:
        start = t0 + flow.start_ns
        if flow.kind in ("iperf3_tcp", "iperf3_udp"):
            told.write_iperf3(folder, flow, host)
        if host == flow.src_host and flow.kind == "udp":
            first = {"planned_unix_ns": start, "error_ns": 20_000, "flow": flow.name}
            events.append({"unix_ns": start + 20_000, "event": "flow_first_data"} | first)
        if flow.kind == "tcp":
            _write_tcp(folder, flow, host, fluid, start)
        if host == flow.src_host and flow.kind in ("iperf3_tcp", "tcp"):
            late = {"planned_unix_ns": start, "error_ns": 1_730_000 + flow.client_port * 7 % 900_000}
            released = {"unix_ns": start + 40_000, "event": "flow_released", "flow": flow.name}
            events += [released | late | {"error_ns": 40_000}] if flow.kind == "iperf3_tcp" else []
            events += [
                {"unix_ns": start + late["error_ns"], "event": "flow_first_data", "flow": flow.name} | late,
                {
                    "unix_ns": start + 2_000_000,
                    "event": "flow_congestion_control",
                    "flow": flow.name,
                    "name": flow.congestion_control,
                },
            ]
        if flow.kind == "atou":
            if host == flow.src_host:
                late = {"planned_unix_ns": start, "error_ns": 60_000}
                events.append({"unix_ns": start, "event": "flow_first_data", "flow": flow.name} | late)
            own_lost = [i for i, (of, _) in enumerate(fluid.connections) if of == flow] if fluid else []
            _write_atou(folder, flow, host, round(fluid.lost[-1, own_lost].sum()) if fluid else 0)
        if flow.kind == "http":
            events += _write_fetches(folder, planned, flow, host, start)
    return events


def _write_tcp(folder: Path, flow: Flow, host: str, fluid: Fluid | None, start: int) -> None:
    """What each end of a flow of kind tcp reports: as many bytes as the fluid model delivers."""
    step = flow.end_ns // 1_000_000 - 1
    own = [i for i, (of, _) in enumerate(fluid.connections) if of == flow] if fluid else []
    # Of what the kernel counts, the last byte is the end of the data.
    sizes = [received_bytes(fluid, step, i) - 1 for i in own] if fluid else [10_000_000] * flow.streams
    for end, side in ((flow.src_host, "sender"), (flow.dst_host, "receiver")):
        if host == end:
            told.write_tcp(folder, flow, side, sizes, start)


def _write_fetches(
    folder: Path, planned: Point, flow: Flow, host: str, start: int
) -> Iterator[dict[str, Any]]:
    begun = len(fetch_times(planned, flow))
    connections = 1 if flow.persistent else begun
    if host == flow.client_host:
        late = {"planned_unix_ns": start, "error_ns": 150_000}
        yield {"unix_ns": start, "event": "flow_first_data", "flow": flow.name} | late
        asked = flow.fetches or len(flow.transfers or [])
        result = {"asked": asked, "begun": begun, "done": begun, "failed": 0, "cut": 0}
        result["connections"] = connections
        (folder / f"http-{flow.name}-receiver.json").write_text(json.dumps(result))
    if host == flow.server_host:
        served = {"served": begun, "connections": connections, "foreign": 0}
        (folder / f"http-{flow.name}-sender.json").write_text(json.dumps(served))


def _write_atou(folder: Path, flow: Flow, host: str, lost: int) -> None:
    """What the ends of a flow of atou report: `atou send --json`, and a line of `atou serve`."""
    assert flow.sender is not None
    assert flow.receiver is not None
    sent, got = (
        "".join(f"{key} {value}\n" for key, value in ({"port": flow.server_port} | keys).items())
        for keys in (flow.sender, flow.receiver)
    )
    ended = {"elapsed_ns": flow.duration_ns + 900, "config": sent, "receiver_config": got, "lost_lines": 0}
    ended |= {"pkts_in": 30_000, "path": {"socket_drops": 0, "foreign": 0}}
    ended |= {"pkts_out": 40_000 + lost, "enobufs": 0}
    received = {"end": "fin", "socket_drops": 0, "arrived_segments": 40_000, "sender_config": sent}
    received |= {"acks_sent": 30_000, "unsent_acks": 0, "foreign": 0}
    for end, side, result in ((flow.src_host, "sender", ended), (flow.dst_host, "receiver", received)):
        if host == end:
            (folder / f"atou-{flow.name}-{side}.json").write_text(json.dumps(result) + "\n")
            (folder / f"atou-{flow.name}-{side}.conf").write_text(sent if side == "sender" else got)
    if host == flow.src_host:
        for name in ("summary", "events"):
            (folder / f"atou-{flow.name}-{name}.txt").write_text("told\n")


def write_pings(folder: Path, planned: Point, own: PhaseHost, t0: int) -> None:
    if not planned.path:
        return
    for ping in own.actions:
        rtt_ns = planned.path.idle_rtt_ns
        if isinstance(ping, PingAction):
            (folder / f"ping-{ping.name}.txt").write_text(ping_text(ping, rtt_ns / 1e6, t0))
        if isinstance(ping, TcpPingAction):
            rtt_ns += _own_delay_ns(planned, ping.dst, ping.dst_port)
            rtts = [rtt_ns + 230_000 + 10_000 * (i % 5) for i in range(ping.count)]
            answers = {"sent": ping.count, "rtts_ns": rtts}
            (folder / f"tcp-ping-{ping.name}.json").write_text(json.dumps(answers))


def _own_delay_ns(planned: Point, server: str, port: int) -> int:
    """What a path adds to the round trip to a port."""
    assert planned.path
    delays = [delay for _, way in planned.path.ways for delay in way.flows or []]
    return sum(
        1000 * d.delay_us for d in delays if (server, port) in ((d.dst, d.dst_port), (d.src, d.src_port))
    )


def write_datagrams(folder: Path, planned: Point, flow: Flow, host: str, t0: int) -> None:
    """What the ends of a flow of datagrams report."""
    assert planned.path
    assert flow.rate_bps
    assert flow.payload_bytes
    if host not in (flow.src_host, flow.dst_host):
        return
    side, delay = (
        ("sender", 0) if host == flow.src_host else ("receiver", planned.path.forward.delay_us * 1000)
    )
    delay += _own_delay_ns(planned, flow.dst, flow.server_port) if side == "receiver" else 0
    sent_packets = round(sent_bits(flow, flow.end_ns) / 8 / flow.payload_bytes)
    through = planned.path.rate_bps(flow.direction) * flow.duration_ns / 1e9 / PACKET_BITS
    packets = round(min(sent_packets, through))
    times = {"first_unix_ns": t0 + flow.start_ns + delay, "last_unix_ns": t0 + flow.end_ns + delay}
    sent, got = told.udp_report(flow, times, sent_packets, delay + CLOCK_OFFSET_NS)
    size = packets * flow.payload_bytes
    got |= {"received_packets": packets, "received_bytes": size, "delay_packets": packets}
    got |= {"lost_packets": sent_packets - packets, "end_seen": True}
    got |= {"received_bps": 8e9 * size / (times["last_unix_ns"] - times["first_unix_ns"])}
    result = times | (sent if side == "sender" else got)
    (folder / f"udp-{flow.name}-{side}.json").write_text(json.dumps(result))


def ping_text(ping: PingAction, rtt_ms: float, t0: int) -> str:
    """Output of ``ping -D``; the first reply waited for ARP."""
    lines = [f"PING {ping.dst} ({ping.dst}) 56(84) bytes of data."]
    times = []
    for seq in range(1, ping.count + 1):
        at = (t0 + ping.at_ns + seq * ping.interval_ns) / 1e9
        ms = rtt_ms * 2 if seq == 1 else rtt_ms + 0.12 + 0.01 * (seq % 5)
        times.append(ms)
        lines.append(f"[{at:.6f}] 64 bytes from {ping.dst}: icmp_seq={seq} ttl=63 time={ms:.1f} ms")
    return "\n".join([*lines, *told.ping_end(ping, times)]) + "\n"


def fetch_times(planned: Point, flow: Flow) -> list[tuple[int, int, int]]:
    """Begin since t0 and length in ns, and bytes of each fetch: every fifth takes half a second longer."""
    assert planned.path
    rtt, rate_bps = planned.path.rtt_ns, planned.path.rate_bps(flow.direction)
    times: list[tuple[int, int, int]] = []
    at = flow.start_ns + 150_000
    while len(times) < (flow.fetches or len(flow.transfers or []) or 1_000_000):
        size = flow.fetch_bytes or 0
        if flow.transfers:
            transfer = flow.transfers[len(times)]
            at, size = flow.start_ns + 150_000 + transfer.at_ns, transfer.bytes
        trips = 1 if flow.persistent and times else 2
        took = trips * rtt + round(8e9 * size / rate_bps)
        took += 500_000_000 if len(times) % 5 == 4 else 0
        if at + took > flow.end_ns:
            break
        times.append((at, took, size))
        at += took + (flow.think_ns or 0)
    return times
