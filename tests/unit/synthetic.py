"""A run directory that no testbed has made: a small fluid model of cubic flows through one queue.

It has the shape of a real one, to test the store, the verdict and the report, and is never a result.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import told

from dumbbell.plan import Direction, Flow, Inventory, Phase, PingAction, Plan, Point, plan, rate_name
from dumbbell.plan.actions import CaptureAction, PathAction, PhaseHost, TcpPingAction

REPOSITORY = Path(__file__).parents[2]
T0_UNIX_NS = {"calibration": 1_767_225_600_000_000_000, "measurement": 1_767_225_630_000_000_000}
RUN_ID = "20260101T000000Z-two_flow_fairness-synthetic"
MSS = 1448
PACKET_BITS = 1514 * 8
# What atou's sender tells of itself without SACK, of what the fluid model has.
ATOU_FIELDS = (
    *("ca_state", "snd_cwnd", "snd_ssthresh", "snd_mss", "unacked", "srtt_us", "rttvar_us", "min_rtt_us"),
    *("data_segs_out", "bytes_sent", "bytes_acked", "bytes_retrans", "total_retrans"),
)
TCP_OPTIONS = 7  # timestamps, SACK, window scaling
PATH_TRIM_US = 250
DEVICES = {
    "forward": {"bottleneck": "vec2", "delay_line": "vec2"},
    "reverse": {"bottleneck": "vec1", "delay_line": "vec1"},
}
GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
OWNED_OF_INTERFACES = ("mtu", "txqueuelen", "gso_max_segs", "routes")
SAMPLES_A_BATCH = 10
CLOCK_OFFSET_NS = -700_000  # of receivers against senders
CHANGE_LATE_NS, CHANGE_TOOK_NS = 1_000_000, 2_000_000


def inventory(senders: int = 2, receivers: int = 2) -> Inventory:
    """A dumbbell of this many hosts on each side of one router, and an archive."""

    def host(side: str, address: str) -> dict[str, Any]:
        interfaces = {side: {"device": "vec1", "address": address}}
        return {"management_interface": "vec0", "experiment_interfaces": interfaces}

    hosts = {f"sender{i + 1}": host("left", f"198.18.1.{11 + i}/24") for i in range(senders)}
    hosts |= {f"receiver{i + 1}": host("right", f"198.18.2.{11 + i}/24") for i in range(receivers)}
    hosts["router"] = {
        "management_interface": "vec0",
        "experiment_interfaces": {
            "left": {"device": "vec1", "address": "198.18.1.1/24"},
            "right": {"device": "vec2", "address": "198.18.2.1/24"},
        },
    }
    hosts["archive"] = {"management_interface": "vec0", "experiment_interfaces": {}}
    groups = {
        "senders": [h for h in hosts if h.startswith("sender")],
        "receivers": [h for h in hosts if h.startswith("receiver")],
        "routers": ["router"],
        "archives": ["archive"],
        "testbed": list(hosts),
    }
    return Inventory.model_validate({"groups": groups, "hosts": hosts})


@dataclass
class Fluid:
    """Connections of cubic flows and a drop-tail queue, in steps of one millisecond."""

    connections: list[tuple[Flow, int]]  # flow and number of its stream
    t_ns: np.ndarray[Any, Any]
    cwnd: np.ndarray[Any, Any]  # [step, connection], packets
    acked: np.ndarray[Any, Any]  # [step, connection], packets delivered so far
    lost: np.ndarray[Any, Any]  # [step, connection], packets lost so far
    queue: np.ndarray[Any, Any]  # [step], packets
    rtt_s: np.ndarray[Any, Any]  # [step, connection]
    recovering: np.ndarray[Any, Any]  # [step, connection], 1 for a round trip after a loss


def simulate(flows: list[Flow], path: Direction, rtt_s: float, duration_s: float, seed: int) -> Fluid:
    """Rates follow cwnd / RTT; a full queue costs the connection that is hit 30 % of its window."""
    own = ("udp", "http")  # of the agents, which tell of them without samples
    connections = [(flow, stream) for flow in flows if flow.kind not in own for stream in range(flow.streams)]
    rng = np.random.default_rng(seed)
    dt, limit = 1e-3, path.queue.limit_packets or 100
    steps, n = round(duration_s / dt), len(connections)
    cwnd, w_max, epoch = np.zeros(n), np.zeros(n), np.zeros(n)
    slow, back_off_until = np.ones(n, bool), np.zeros(n)
    queue, acked, lost = 0.0, np.zeros(n), np.zeros(n)
    t_ns = np.arange(steps) * 1_000_000
    own_s = np.array([(flow.delay_us or 0) / 1e6 for flow, _ in connections])
    shapes = [(steps, n), (steps, n), (steps, n), (steps,), (steps, n), (steps, n)]
    datagrams = [flow for flow in flows if flow.kind == "udp" and flow.rate_steps]
    out = Fluid(connections, t_ns, *map(np.zeros, shapes))
    for step in range(steps):
        t = step * dt
        taken_bps = sum(rate_bps(flow, round(t * 1e9)) for flow in datagrams)
        capacity = (path.at(round(t * 1e9)).rate_bps - taken_bps) / PACKET_BITS
        active = np.array([f.start_ns <= t * 1e9 < f.end_ns for f, _ in connections], dtype=bool)
        starting = active & (cwnd == 0)
        cwnd[starting] = 10
        rtt = rtt_s + own_s + queue / capacity
        rate = np.where(active, cwnd / rtt, 0)
        served = min(rate.sum(), capacity) if queue < 1 else capacity
        share = rate / rate.sum() if rate.sum() else np.zeros(n)
        acked += share * served * dt
        queue = max(0.0, queue + (rate.sum() - served) * dt)
        if queue > limit:
            over = max(queue - limit, 4.0)
            lost += share * over
            queue = float(limit)
            hit = active & (t >= back_off_until) & (rng.random(n) < np.minimum(1, 2.5 * share))
            w_max[hit], epoch[hit], slow[hit] = cwnd[hit], t, False
            cwnd[hit] *= 0.7
            back_off_until[hit] = t + rtt[hit]
        k = np.cbrt(w_max * 0.3 / 0.4)
        cubic = 0.4 * (t - epoch - k) ** 3 + w_max
        reno = w_max * 0.7 + 3 * 0.3 / 1.7 * (t - epoch) / rtt
        grown = np.where(slow, cwnd * (1 + dt / rtt), np.maximum(np.maximum(cubic, reno), cwnd))
        cwnd = np.where(active, np.minimum(grown, cwnd * (1 + dt / rtt)), cwnd)
        out.cwnd[step], out.acked[step], out.lost[step] = cwnd, acked, lost
        out.queue[step], out.rtt_s[step] = queue, rtt
        out.recovering[step] = active & (t < back_off_until)
    return out


def rate_bps(flow: Flow, at_ns: int) -> int:
    """Rate that is asked of a flow of datagrams at a time."""
    if not flow.start_ns <= at_ns < flow.end_ns:
        return 0
    steps = [(0, flow.rate_bps or 0), *((step.at_ns, step.rate_bps) for step in flow.rate_steps or [])]
    return [rate for since, rate in steps if flow.start_ns + since <= at_ns][-1]


def sent_bits(flow: Flow, until_ns: int) -> float:
    """Payload that a flow of datagrams has sent by a time, at the rates that are asked of it."""
    times = [flow.start_ns, *(flow.start_ns + step.at_ns for step in flow.rate_steps or []), flow.end_ns]
    spans = [(since, min(until, until_ns)) for since, until in pairwise(times) if since < until_ns]
    return sum(rate_bps(flow, since) * (until - since) / 1e9 for since, until in spans)


def write_points(run_dir: Path, scenario: Path) -> Plan:
    """Write directories of all points of a scenario, one after the other."""
    whole = plan(scenario, inventory())
    for number in range(len(whole.points)):
        write_run(run_dir / "points" / f"{number + 1:03}", scenario, number)
    return whole


Measured = Callable[[Point, Phase, str], Iterable[str]]  # rows of a host


def write_run(
    run_dir: Path,
    scenario: Path = REPOSITORY / "scenarios/two_flow_fairness.yml",
    point: int = 0,
    measured: Measured | None = None,
) -> Plan:
    """Write ``scenario.yml``, ``plan.json`` and ``raw/`` of a run in which everything went as asked.

    ``measured`` gives what a host sampled in the measurement, in place of the fluid model.
    """
    run_dir.mkdir(parents=True)
    whole = plan(scenario, inventory())
    planned = whole.points[point]
    whole = whole.model_copy(update={"points": [planned]})
    (run_dir / "scenario.yml").write_bytes(scenario.read_bytes())
    (run_dir / "plan.json").write_bytes(whole.to_json())
    states = ("planned", "preparing", "calibrating", "armed", "running", "collecting")
    transitions = [
        {
            "unix_ns": T0_UNIX_NS["calibration"] + 8_000_000_000 * (i - 2),
            "event": "state",
            "state": s,
            "reason": "",
        }
        for i, s in enumerate(states)
    ]
    (run_dir / "events.jsonl").write_text("".join(json.dumps(t) + "\n" for t in transitions))
    assert planned.path
    forward, rtt_s = planned.path.forward, planned.path.rtt_ns / 1e9
    fluids = [
        None
        if measured and phase.phase == "measurement"
        else simulate(phase.flows, forward, rtt_s, phase.duration_ns / 1e9, whole.seed)
        for phase in planned.phases
    ]
    for host, detail in planned.hosts.items():
        raw = run_dir / "raw" / host
        raw.mkdir(parents=True)
        router = "routers" in detail.groups
        (raw / "state.json").write_text(json.dumps(_state(planned, host, router=router)))
        for phase, fluid in zip(planned.phases, fluids, strict=True):
            if host in phase.hosts:
                rows: Iterable[str] = ()
                if measured and fluid is None:
                    rows = measured(planned, phase, host)
                elif fluid and phase.hosts[host].writes_rows:
                    rows = _samples(planned, phase, host, T0_UNIX_NS[phase.phase], fluid)
                _write_phase(raw / phase.phase, planned, phase, host, rows, fluid=fluid)
                if phase.phase == "measurement":
                    read = json.dumps(_observed(planned, phase, host))
                    (raw / phase.phase / "observed.json").write_text(read)
    return whole


def _state(planned: Point, host: str, *, router: bool) -> dict[str, Any]:
    asked = planned.hosts[host].state
    nic = {
        "txqueuelen": asked.txqueuelen or 1000,
        "mtu": 1500,
        "qdisc": "pfifo_fast",
        "gso_max_segs": 65535,
        "qdisc_options": {"bands": 3},
        "qdisc_leaves": [],
        "routes": [],
        "offloads": asked.offloads,
    }
    path = planned.path.model_dump(include={"forward", "reverse"}) if planned.path and router else None
    if path:
        for direction in path.values():
            direction["delay_us"] -= PATH_TRIM_US
            direction.pop("changes", None)
        path["trim_us"] = PATH_TRIM_US
        path["burst_us"] = 1000
        path["devices"] = DEVICES
        path["handles"] = {"forward": ["1:", "101:"], "reverse": ["1:", "101:"]}
        nic["qdisc"] = "netem"
    controls = sorted({"reno", "cubic", *asked.congestion_controls})
    sysctls = {"net.ipv4.tcp_congestion_control": "cubic", "net.ipv4.tcp_sack": "1"} | asked.sysctls
    sysctls["net.ipv4.tcp_allowed_congestion_control"] = " ".join(controls)
    owned: dict[str, Any] = {name: [value, value] for name, value in sysctls.items()}
    owned |= {f"path {name}": [path[name]] * 2 for name in ("forward", "reverse") if path}
    owned |= {"module tcp_cubic": ["loaded", "loaded"], GOVERNOR: ["performance", "performance"]}
    for module, parameters in asked.modules.items():
        owned |= {f"{name} of {module}": [value, value] for name, value in parameters.items()}
    for device in _devices(host, planned):
        owned |= {f"{device} {name}": [nic[name]] * 2 for name in OWNED_OF_INTERFACES}
        owned |= {f"{device} addresses": [["198.18.1.11/24"]] * 2, f"{device} up": [True, True]}
        owned |= {f"{device} feature {name}": [on, on] for name, on in asked.offloads.items()}
        if path is None:
            owned[f"qdisc of {device}"] = [[], []]
    offset = {"router": 0}.get(host, 20_000 + 13_000 * (zlib.crc32(host.encode()) % 9))
    return {
        "kernel": "6.12.0-synthetic",
        "boot_id": _boot_id(host),
        "cpu": {GOVERNOR: "performance"},
        "owned": owned,
        "tcp_metrics": {"flushed": True},
        "nic": {device: nic for device in _devices(host, planned)},
        "sysctl": sysctls,
        "modules": {
            "loaded": {
                "tcp_cubic": {
                    "srcversion": None,
                    "build_id": None,
                    "parameters": {"hystart": "1", "fast": "Y", "beta": "717"},
                }
            },
            "available": controls,
            "allowed": controls,
        },
        "path": path,
        "clock": {"offset_ns": offset, "root_dispersion_ns": 80_000, "synchronised": True}
        | {"server": "archive", "source": "chrony"},
        "versions": {"agent": "0.1.0", "iperf3": "3.12", "telegraf": "1.37.2"},
        "hardware": {"machine": "QEMU Standard PC", "processor": "AMD EPYC"},
    }


def _devices(host: str, planned: Point) -> tuple[str, ...]:
    return ("vec1", "vec2") if "routers" in planned.hosts[host].groups else ("vec1",)


def _boot_id(host: str) -> str:
    return f"{zlib.crc32(host.encode()):08x}-0000-4000-8000-000000000000"


def _observed(planned: Point, phase: Phase, host: str) -> dict[str, Any]:
    """Two readings of an agent between which nothing changed."""
    asked, t0 = planned.hosts[host].state, T0_UNIX_NS[phase.phase]
    router = "routers" in planned.hosts[host].groups
    settings = {
        "clock source": "tsc",
        "iptables": "none",
        "kernel command line": "root=/dev/vda1 ro quiet",
        "kernel release": "6.12.0-synthetic",
        "mitigation spectre_v2": "Mitigation: Retpolines",
        "module tcp_cubic beta": "717",
        "module tcp_cubic fast": "Y",
        "module tcp_cubic hystart": "1",
        "net.core.default_qdisc": "pfifo_fast",
        "net.ipv4.conf.all.rp_filter": "0",
        "net.ipv4.conf.default.rp_filter": "2",
        "net.ipv4.tcp_congestion_control": "cubic",
        "net.ipv4.tcp_sack": "1",
        "nftables": "none",
        "service irqbalance": "absent",
    } | asked.sysctls
    controls = sorted({"reno", "cubic", *asked.congestion_controls})
    settings["net.ipv4.tcp_allowed_congestion_control"] = " ".join(controls)
    for device in _devices(host, planned):
        settings |= {
            f"{device} driver": "virtio_net 1.0.0",
            f"{device} feature tx-checksumming": "on",
            f"{device} mtu": "1500",
            f"{device} txqueuelen": str(planned.hosts[host].state.txqueuelen or 1000),
            f"qdisc {device} root": "pfifo_fast 0: bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1",
        }
        if router and planned.path:
            line = f"netem 101: limit 1000 delay {planned.path.forward.delay_us - PATH_TRIM_US}us"
            settings[f"qdisc {device} root"] = line
    reading = {"boot_id": _boot_id(host), "settings": dict(sorted(settings.items()))}
    unread = {f"{device} eee": "errno 524" for device in _devices(host, planned)}
    before, after = t0 - 6_000_000_000, t0 + phase.duration_ns + 40_000_000
    return {
        name: {"unix_ns": at, **reading, "unread": unread}
        for name, at in (("before", before), ("after", after))
    }


def _write_phase(
    folder: Path, planned: Point, phase: Phase, host: str, rows: Iterable[str], *, fluid: Fluid | None
) -> None:
    folder.mkdir()
    t0 = T0_UNIX_NS[phase.phase]
    own = phase.hosts[host]
    part = phase.model_dump() | {"run_id": RUN_ID, "holder": RUN_ID, "point": planned.id, "host": host}
    (folder / "plan.json").write_text(json.dumps(part))
    (folder / "start.json").write_text(json.dumps({"t0_unix_ns": t0}))
    end = t0 + phase.duration_ns
    ended = max(end, t0 + (own.restore_ns or 0))
    status = {
        "state": "done",
        "reason": "",
        "unix_ns": ended + 2_000_000,
        "version": "0.1.0",
        "lead_ns": 3_500_000_000,
        "iperf3": "iperf 3.12",
    }
    (folder / "status.json").write_text(json.dumps(status))

    events = list(told.launched(phase, host, own, t0))
    events += _flows_told(folder, planned, phase, host, fluid=fluid)
    events += _changes_made(own, t0)
    for action in own.actions:
        if isinstance(action, PathAction):
            (folder / f"path-{action.name}.txt").touch()
        if isinstance(action, CaptureAction):
            (folder / f"capture-{action.name}.pcap").write_bytes(b"pcap")
    common = f"phase={phase.phase},point={planned.id},run={RUN_ID}"
    devices = ["vec1", "vec2"] if host == "router" else ["vec1"]
    rows = [*rows, *told.rows(phase, host, common, t0, devices)]
    write_spool(folder / "spool.lp", rows)
    events += _sampling_ended(phase, own, end)
    for action in own.actions:
        if isinstance(action, CaptureAction):
            counts = {"name": action.name, "packets": 9_500, "dropped": 0}
            events.append({"unix_ns": end, "event": "capture"} | counts)
    none = {"unix_ns": end, "event": "strangers", "packets": 0, "first": "", "open": []}
    events += [none] if own.waits else []
    watched = {"steps": 0, "largest_step_ns": 0, "drift_ns": 12_000}
    events.append({"unix_ns": end, "event": "clock_watched"} | watched)
    events.append({"unix_ns": ended + 1_000_000, "event": "done"})
    text = "".join(json.dumps({"mono_ns": e["unix_ns"] - t0 + 10**12} | e) + "\n" for e in events)
    (folder / "events.jsonl").write_text(text)
    for flow in phase.flows:
        if flow.kind == "udp":
            _write_datagrams(folder, planned, flow, host, t0)
    _write_pings(folder, planned, own, t0)


def _flows_told(
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
        if host == flow.src_host and flow.kind == "iperf3_tcp":
            late = {"planned_unix_ns": start, "error_ns": 1_730_000 + flow.client_port * 7 % 900_000}
            events += [
                {"unix_ns": start + 40_000, "event": "flow_released", "flow": flow.name}
                | late
                | {"error_ns": 40_000},
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


def _write_fetches(
    folder: Path, planned: Point, flow: Flow, host: str, start: int
) -> Iterator[dict[str, Any]]:
    begun = len(_fetch_times(planned, flow))
    connections = 1 if flow.persistent else begun
    if host == flow.client_host:
        late = {"planned_unix_ns": start, "error_ns": 150_000}
        yield {"unix_ns": start, "event": "flow_first_data", "flow": flow.name} | late
        result = {"asked": flow.fetches or 0, "begun": begun, "done": begun, "failed": 0, "cut": 0}
        result["connections"] = connections
        (folder / f"http-{flow.name}-receiver.json").write_text(json.dumps(result))
    if host == flow.server_host:
        served = {"served": begun, "connections": connections, "foreign": 0}
        (folder / f"http-{flow.name}-sender.json").write_text(json.dumps(served))


def _sampling_ended(phase: Phase, own: PhaseHost, end: int) -> Iterator[dict[str, Any]]:
    """What an agent says of its samples at the end."""
    ticks = (phase.duration_ns + told.LEAD_NS) // phase.sampling_interval_ns
    if ticks:
        sampler = {"sampled": ticks - 1, "ticks": ticks, "missed": 1}
        interval_ns = phase.sampling_interval_ns * 100_012 // 100_000
        achieved = {"achieved_interval_ns": interval_ns, "late_max_ns": 3_100_000}
        yield {"unix_ns": end, "event": "sampler"} | sampler | achieved
    kinds = {flow.name: flow.kind for flow in phase.flows}
    if any(kinds[name] not in ("http", "atou") for name in own.sample.tcp):
        yield {"unix_ns": end, "event": "finals", "open": 0, "lost": 0}
    if own.sample.trace:
        yield {"unix_ns": end, "event": "trace", "records": 1000, "lost": 0}


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


def _changes_made(own: PhaseHost, t0: int) -> Iterator[dict[str, Any]]:
    for action in own.actions:
        if isinstance(action, PathAction):
            at = t0 + action.at_ns
            made = {"error_ns": CHANGE_LATE_NS, "took_ns": CHANGE_TOOK_NS, "planned_unix_ns": at, "ok": True}
            yield {"unix_ns": at + CHANGE_LATE_NS, "event": "path_changed", "name": action.name} | made
    if own.restore_ns is not None:
        yield {"unix_ns": t0 + own.restore_ns, "event": "path_restored", "ok": True}


def _write_pings(folder: Path, planned: Point, own: PhaseHost, t0: int) -> None:
    if not planned.path:
        return
    for ping in own.actions:
        rtt_ns = planned.path.rtt_ns
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


def _write_datagrams(folder: Path, planned: Point, flow: Flow, host: str, t0: int) -> None:
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


def _samples(planned: Point, phase: Phase, host: str, t0: int, fluid: Fluid) -> list[str]:
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
        rows += _own_queues(phase, host, common, t0, _devices(host, planned))
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
        if flow.kind == "iperf3_tcp":
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


def _fetch_times(planned: Point, flow: Flow) -> list[tuple[int, int]]:
    """Begin since t0 and length in ns of each fetch: every fifth takes half a second longer."""
    assert planned.path
    assert flow.fetch_bytes
    rtt, bits = planned.path.rtt_ns, 8 * flow.fetch_bytes
    times: list[tuple[int, int]] = []
    at = flow.start_ns + 150_000
    while len(times) < (flow.fetches or 1_000_000):
        trips = 1 if flow.persistent and times else 2
        took = trips * rtt + round(1e9 * bits / planned.path.rate_bps(flow.direction))
        took += 500_000_000 if len(times) % 5 == 4 else 0
        if at + took > flow.end_ns:
            break
        times.append((at, took))
        at += took + (flow.think_ns or 0)
    return times


def _fetches(planned: Point, phase: Phase, host: str, t0: int, flow: Flow) -> list[str]:
    """What one end tells of each fetch; those that take longer were sent again after a timeout."""
    assert planned.path
    assert flow.fetch_bytes
    side = "sender" if host == flow.src_host else "receiver"
    tags = f"flow={flow.name},host={host},phase={phase.phase},point={planned.id},run={RUN_ID},side={side}"
    rtt, segments, rows = planned.path.rtt_ns, -(-flow.fetch_bytes // MSS), []
    for i, (at, took) in enumerate(_fetch_times(planned, flow)):
        opened = i == 0 or not flow.persistent
        since = 0 if flow.persistent else i  # fetches before this one over its connection are in its counts
        fields = {"fetch": i + 1, "cookie": 1000 if flow.persistent else 1000 + i}
        if side == "sender":
            again = (i + 1) // 5 - since // 5
            fields |= {"sent_bytes": flow.fetch_bytes, "total_retrans": again, "total_rto": again}
            fields["data_segs_out"] = segments * (i + 1 - since) + again
        else:
            fields |= {"received_bytes": flow.fetch_bytes, "completion_ns": took}
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
            "bytes_received": acked + 37,
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


def write_spool(path: Path, rows: Iterable[str]) -> None:
    """Rows in batches as the agent writes them."""
    left = iter(rows)
    with path.open("wb") as spool:
        for number in count(1):
            if not (batch := list(islice(left, SAMPLES_A_BATCH))):
                return
            spool.write(batch_bytes(number, batch))


def batch_bytes(number: int, rows: list[str]) -> bytes:
    """One batch with its closing line."""
    body = "".join(row + "\n" for row in rows).encode()
    return body + b"# batch=%d rows=%d crc32=%08x\n" % (number, len(rows), zlib.crc32(body))
