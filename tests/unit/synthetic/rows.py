"""What agents sample of the fluid model, in line protocol."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from dumbbell.plan import Flow, Phase, Point, rate_name
from synthetic import told
from synthetic.constants import CHANGE_LATE_NS, CHANGE_TOOK_NS, RUN_ID, T0_UNIX_NS
from synthetic.fluid import MSS, PACKET_BITS, Fluid, received_bytes, sent_bits
from synthetic.hosts import DEVICES, PATH_TRIM_US, devices_of
from synthetic.reports import fetch_times

# What atou's sender tells of itself without SACK, of what the fluid model has.
ATOU_FIELDS = (
    *("ca_state", "snd_cwnd", "snd_ssthresh", "snd_mss", "unacked", "srtt_us", "rttvar_us", "min_rtt_us"),
    *("data_segs_out", "bytes_sent", "bytes_acked", "bytes_retrans", "total_retrans"),
)
TCP_OPTIONS = 7  # timestamps, SACK, window scaling


def samples(planned: Point, phase: Phase, host: str, t0: int, fluid: Fluid) -> list[str]:
    rng = np.random.default_rng(zlib.crc32(host.encode()))
    common = f"phase={phase.phase},point={planned.id},run={RUN_ID}"
    rows = [
        row
        for flow in phase.flows
        if flow.kind == "udp"
        for row in _datagrams(planned, phase, host, t0, flow)
    ]
    rows += [
        row
        for flow in phase.flows
        if flow.kind == "http" and host in (flow.src_host, flow.dst_host)
        for row in _fetches(planned, phase, host, t0, flow)
    ]
    latest: dict[tuple[int, str], int] = {}  # counters only grow
    for tick in range(phase.duration_ns // phase.sampling_interval_ns):
        at = tick * phase.sampling_interval_ns + int(rng.gamma(2, 60_000))
        step = min(at // 1_000_000, len(fluid.t_ns) - 1)
        stamp = f"mono_ns={at + 10**12}i {t0 + at}"
        rows += _of_connections(planned, phase, host, at, fluid=fluid, latest=latest)
        if phase.hosts[host].sample.qdisc:
            drops, sent = round(fluid.lost[step].sum()), round(fluid.acked[step].sum())
            queue = round(fluid.queue[step])
            blasts = [flow for flow in phase.flows if flow.name == rate_name(flow.direction)]
            if blasts and planned.path:  # one after the other, more than the path takes: its queue is full
                since = [min(max(at - flow.start_ns, 0), flow.duration_ns) for flow in blasts]
                sent = round(planned.path.forward.rate_bps * sum(since) / 1e9 / PACKET_BITS)
                busy = any(0 < s < flow.duration_ns for s, flow in zip(since, blasts, strict=True))
                queue = 166 if busy else 0
            for dev, kind, handle, parent, packets, dropped, backlog in (
                ("vec2", "htb", "1:", "root", sent, drops, 0),
                ("vec2", "pfifo", "10:", "1:1", sent, drops, queue),
                ("vec1", "htb", "1:", "root", sent // 2, 0, 0),
                ("vec1", "pfifo", "10:", "1:1", sent // 2, 0, int(rng.random() < 0.2)),
            ):
                size = 1514 if dev == "vec2" else 66
                fields = {
                    "backlog_bytes": backlog * size,
                    "qlen_packets": backlog,
                    "bytes": packets * size,
                    "packets": packets,
                    "drops": dropped,
                    "overlimits": packets,
                    "requeues": 0,
                }
                if kind == "pfifo" and planned.path:
                    fields["limit_packets"] = planned.path.forward.at(at).queue.limit_packets or 0
                tags = f"dev={dev},handle={handle},host={host},kind={kind},parent={parent},{common}"
                rows.append(f"qdisc,{tags} " + ",".join(f"{k}={v}i" for k, v in fields.items()) + f",{stamp}")
            rows += _settings(planned, at, host, common, sent=sent, stamp=stamp)
    rows += _finals(planned, phase, host, fluid=fluid, latest=latest)
    if phase.hosts[host].sample.queues:
        rows += _own_queues(phase, host, common, t0, devices_of(host, planned))
    if phase.hosts[host].sample.cpu:
        rows += _cpu(phase, host, common, t0)
    if phase.hosts[host].sample.snmp:
        rows += _netstat(phase, host, common, t0, fluid)
    if phase.hosts[host].sample.trace:
        rows += _ca_states(phase, host, common, t0, fluid)
    return rows


def _of_connections(
    planned: Point, phase: Phase, host: str, at: int, *, fluid: Fluid, latest: dict[tuple[int, str], int]
) -> Iterator[str]:
    """Rows of the connections of a host at a time. ``latest`` keeps counters that only grow."""
    step = min(at // 1_000_000, len(fluid.t_ns) - 1)
    common = f"phase={phase.phase},point={planned.id},run={RUN_ID}"
    stamp = f"mono_ns={at + 10**12}i {T0_UNIX_NS[phase.phase] + at}"
    for i, (flow, stream) in enumerate(fluid.connections):
        if flow.name not in phase.hosts[host].sample.tcp or not flow.start_ns <= at < flow.end_ns:
            continue
        side = "sender" if host == flow.src_host else "receiver"
        tags = f"flow={flow.name},host={host},{common},side={side},stream={stream}"
        fields = _tcp_info(fluid, step, i, _min_rtt_us(planned, flow), sender=side == "sender")
        for name in ("bytes_sent", "data_segs_out"):
            fields[name] = latest[i, name] = max(latest.get((i, name), 0), fields.get(name, 0))
        if flow.kind == "atou":
            fields = told.atou({name: fields[name] for name in ATOU_FIELDS if name in fields})
        else:
            fields = told.tcp_info(fields) | (_paced(flow) if side == "sender" else {})
        text = told.fields(fields)
        control = flow.congestion_control or flow.kind
        yield f'tcp_info,{tags} {text},congestion_control="{control}",{stamp}'
        if phase.hosts[host].sample.trace:
            probe = told.fields({"snd_cwnd": fields["snd_cwnd"], "data_bytes": 0} | told.PROBE)
            yield f"tcp_probe,{tags} {probe},{stamp}"


def _finals(
    planned: Point,
    phase: Phase,
    host: str,
    *,
    fluid: Fluid,
    latest: dict[tuple[int, str], int],
) -> Iterator[str]:
    """The last row of each connection, when its socket has ended."""
    common, t0 = f"phase={phase.phase},point={planned.id},run={RUN_ID}", T0_UNIX_NS[phase.phase]
    for i, (flow, stream) in enumerate(fluid.connections):
        if flow.name not in phase.hosts[host].sample.tcp:
            continue
        side = "sender" if host == flow.src_host else "receiver"
        step, at = min(flow.end_ns // 1_000_000, len(fluid.t_ns)) - 1, flow.end_ns
        values = _tcp_info(fluid, step, i, _min_rtt_us(planned, flow), sender=side == "sender")
        for name in ("bytes_sent", "data_segs_out"):
            values[name] = max(latest.get((i, name), 0), values.get(name, 0))
        last = told.tcp_info(values, final=True) | (_paced(flow) if side == "sender" else {})
        if flow.kind == "atou":
            last = told.atou({name: values[name] for name in ATOU_FIELDS if name in values})
            last |= {"final": True, "congestion_control": "atou"}
        tags = f"flow={flow.name},host={host},{common},side={side},stream={stream}"
        yield f"tcp_info,{tags} {told.fields(last)},mono_ns={at + 10**12}i {t0 + at}"
        if flow.kind in ("iperf3_tcp", "tcp"):
            traced = {"FastRetran": 7} if phase.hosts[host].sample.trace else {}
            for grade, variables in (
                ("exact", told.web100(last) | traced),
                ("approximate", {"MaxRTT": 31000}),
            ):
                of = tags.replace(f"host={host}", f"grade={grade},host={host}")
                yield f"web100,{of} {told.fields(variables)},mono_ns={at + 10**12}i {t0 + at}"


def _own_queues(phase: Phase, host: str, common: str, t0: int, devices: Iterable[str]) -> Iterator[str]:
    """Of the interfaces of a host that emulates nothing; nothing waits there."""
    for device in devices:
        tags = f"dev={device},handle=0:,host={host},kind=pfifo_fast,parent=root,{common}"
        for second in range(phase.duration_ns // 10**9 + 1):
            at, packets = second * 10**9, 1000 * second
            counts = f"bytes={1514 * packets}i,packets={packets}i,drops=0i,overlimits=0i,requeues=0i"
            stamp = f"mono_ns={at + 10**12}i {t0 + at}"
            yield f"qdisc,{tags} backlog_bytes=0i,qlen_packets=0i,{counts},{stamp}"


def _cpu(phase: Phase, host: str, common: str, t0: int) -> Iterator[str]:
    """Two cores, each second: the second is at rest."""
    for second in range(phase.duration_ns // 10**9 + 1):
        at = second * 10**9
        for core, idle_ms in enumerate((400 * second, 1000 * second)):
            times = told.cpu({"user_ms": 1000 * second - idle_ms, "idle_ms": idle_ms})
            yield f"cpu_core,cpu={core},host={host},{common} {times},mono_ns={at + 10**12}i {t0 + at}"


def _netstat(phase: Phase, host: str, common: str, t0: int, fluid: Fluid) -> Iterator[str]:
    """Counters of a host, each second what moved; a receiver puts out of order what follows a loss."""
    sides = {"TcpRetransSegs": "src_host", "TcpExtTCPOFOQueue": "dst_host"}
    for name, side in sides.items():
        own = [i for i, (flow, _) in enumerate(fluid.connections) if getattr(flow, side) == host]
        before = 0
        for second in range(phase.duration_ns // 10**9 + 1):
            total = round(fluid.lost[min(second * 1000, len(fluid.t_ns) - 1), own].sum())
            at, grown = second * 10**9, f"delta={total - before}i,interval_ns=1000000000i,"
            stamp = f"mono_ns={at + 10**12}i {t0 + at}"
            if second == 0 or total != before:
                yield f"snmp,host={host},name={name},{common} total={total}i,{grown * (second > 0)}{stamp}"
            before = total


def _ca_states(phase: Phase, host: str, common: str, t0: int, fluid: Fluid) -> Iterator[str]:
    """Changes of the congestion state of the senders of a host, as its trace has them."""
    for i, (flow, stream) in enumerate(fluid.connections):
        if host == flow.src_host and flow.name in phase.hosts[host].sample.tcp:
            tags = f"event=ca_state,flow={flow.name},host={host},{common},side=sender,stream={stream}"
            for step in np.flatnonzero(np.diff(fluid.recovering[:, i])) + 1:
                at, state = int(fluid.t_ns[step]), 3 * round(fluid.recovering[step, i])
                yield f"tcp_event,{tags} ca_state={state}i,mono_ns={at + 10**12}i {t0 + at}"


def _settings(planned: Point, at: int, host: str, common: str, *, sent: int, stamp: str) -> list[str]:
    """The delay lines and, of a path that changes, what else it is asked to be at a time."""
    rows = []
    for name, way in planned.path.ways if planned.path else []:
        state, devices = way.at(max(0, at - CHANGE_LATE_NS - CHANGE_TOOK_NS)), DEVICES[name]
        device = f"dev={devices['bottleneck']},handle=1:1,host={host},kind=htb,parent=root"
        rows.append(f"tc_class,{device},{common} {told.of_class(state.rate_bps)},{stamp}")
        for band, own_us in enumerate(sorted({0, *(flow.delay_us for flow in way.flows or [])}), start=1):
            device = f"dev={devices['delay_line']},handle={band}01:,host={host},kind=netem,parent=1:{band}"
            delay_ns = 1000 * (state.delay_us - PATH_TRIM_US + own_us) // 64 * 64
            shares = f"loss={state.loss},duplicate=0,corrupt=0,reorder=0"
            counts = f"delay_ns={delay_ns}i,jitter_ns=0i,rate_bps=0i,drops=0i,packets={sent}i,{told.NETEM}"
            rows.append(f"qdisc,{device},{common} {shares},{counts},{stamp}")
    return rows


def _datagrams(planned: Point, phase: Phase, host: str, t0: int, flow: Flow) -> list[str]:
    """A flow at more than the rate of the path: what is above it is lost."""
    assert planned.path
    assert flow.rate_bps
    assert flow.payload_bytes
    if host not in (flow.src_host, flow.dst_host):
        return []
    side, interval = "sender" if host == flow.src_host else "receiver", phase.sampling_interval_ns
    tags = f"flow={flow.name},host={host},phase={phase.phase},point={planned.id},run={RUN_ID},side={side}"
    rows = []
    for at in range(flow.start_ns + interval, flow.end_ns + interval + 1, interval):
        seconds = (min(at, flow.end_ns) - flow.start_ns) / 1e9
        sent = round(sent_bits(flow, at) / (8 * flow.payload_bytes))
        arrived = min(sent, round(planned.path.rate_bps(flow.direction) * seconds / PACKET_BITS))
        if side == "sender":
            fields = {"asked_packets": sent, "sent_packets": sent, "sent_bytes": sent * flow.payload_bytes}
            fields |= dict.fromkeys(("skipped_packets", "dropped_packets", "late_max_ns"), 0)
        else:
            fields = {"received_packets": arrived, "received_bytes": arrived * flow.payload_bytes}
            fields |= {"lost_packets": sent - arrived, "delay_packets": 1, "delay_mean_ns": 30_000_000}
            fields |= dict.fromkeys(("delay_min_ns", "delay_max_ns"), 30_000_000)
            names = ("reordered_packets", "duplicate_packets", "stale_packets", "socket_drops")
            fields |= dict.fromkeys(names, 0)
        fields["mono_ns"] = at + told.MONO_NS
        rows.append(f"udp,{tags} " + ",".join(f"{k}={v}i" for k, v in fields.items()) + f" {t0 + at}")
    return rows


def _fetches(planned: Point, phase: Phase, host: str, t0: int, flow: Flow) -> list[str]:
    """What one end tells of each fetch; those that take longer were sent again after a timeout."""
    assert planned.path
    side = "sender" if host == flow.src_host else "receiver"
    tags = f"flow={flow.name},host={host},phase={phase.phase},point={planned.id},run={RUN_ID},side={side}"
    rtt, rows = planned.path.rtt_ns, []
    for i, (at, took, size) in enumerate(fetch_times(planned, flow)):
        segments = -(-size // MSS)
        opened = i == 0 or not flow.persistent
        since = 0 if flow.persistent else i  # fetches before this one over its connection are in its counts
        fields = {"fetch": i + 1, "cookie": 1000 if flow.persistent else 1000 + i}
        if side == "sender":
            again = (i + 1) // 5 - since // 5
            fields |= {"sent_bytes": size, "total_retrans": again, "total_rto": again}
            fields["data_segs_out"] = segments * (i + 1 - since) + again
        else:
            fields |= {"received_bytes": size, "completion_ns": took}
            fields |= {"connect_ns": rtt, "first_byte_ns": 2 * rtt} if opened else {"first_byte_ns": rtt}
        text = ",".join(f"{k}={v}i" for k, v in fields.items())
        stamp = t0 + at + (rtt * opened + rtt // 2 if side == "sender" else 0)
        text += f',congestion_control="{flow.congestion_control}",mono_ns={stamp - t0 + told.MONO_NS}i'
        rows.append(f"http_fetch,{tags} {text} {stamp}")
        if flow.name in phase.hosts[host].sample.tcp:  # the socket, once a fetch
            own = told.tcp_info({"cookie": fields["cookie"], "congestion_control": flow.congestion_control})
            rows.append(f"tcp_info,{tags} {told.fields(own)},mono_ns={stamp - t0 + told.MONO_NS}i {stamp}")
    return rows


def _paced(flow: Flow) -> dict[str, int]:
    return {} if flow.pacing_bps is None else {"max_pacing_rate_Bps": flow.pacing_bps // 8}


def _min_rtt_us(planned: Point, flow: Flow) -> int:
    return (planned.path.rtt_ns // 1000 if planned.path else 20_000) + (flow.delay_us or 0) + 80


def _tcp_info(fluid: Fluid, step: int, connection: int, min_rtt_us: int, *, sender: bool) -> dict[str, int]:
    packets = fluid.acked[step, connection]
    acked = round(packets * MSS)
    cwnd, lost = max(10, round(fluid.cwnd[step, connection])), round(fluid.lost[step, connection])
    srtt = round(fluid.rtt_s[step, connection] * 1e6)
    common = {"state": 1, "ca_state": 0, "options": TCP_OPTIONS, "snd_mss": MSS, "advmss": MSS}
    common["rcv_mss"] = 536 if sender else MSS
    if not sender:
        return common | {
            "snd_cwnd": 10,
            "srtt_us": 20_100,
            "bytes_acked": 37,
            "bytes_received": received_bytes(fluid, step, connection),
            "data_segs_in": round(packets) + 1,  # the first carried iperf3's cookie of 37 bytes
        }
    return common | {
        "ca_state": 3 * round(fluid.recovering[step, connection]),
        "snd_cwnd": cwnd,
        "snd_ssthresh": 2**31 - 1 if lost == 0 else round(cwnd * 0.8),
        "unacked": cwnd,
        **dict.fromkeys(("sacked", "lost", "retrans"), 0),
        "srtt_us": srtt,
        "rttvar_us": 400,
        "min_rtt_us": min_rtt_us,
        "bytes_acked": acked + 38,
        "bytes_received": 0,
        "bytes_sent": acked + (lost + cwnd) * MSS,
        "total_retrans": lost,
        "data_segs_in": 0,
        "data_segs_out": acked // MSS + lost + cwnd,
        "delivery_rate_Bps": round(cwnd * MSS / srtt * 1e6),
        "pacing_rate_Bps": round(1.2 * cwnd * MSS / srtt * 1e6),
    }
