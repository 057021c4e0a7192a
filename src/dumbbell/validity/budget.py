"""The loss budget of a run: packets may be lost only where the scenario asks for it.

Every counter of drops and errors on the hosts is read; it may not grow where no drop was requested. What
flows lost is compared with what the path dropped: a difference means that packets were lost, or dropped,
where no counter counts. In both cases the run is invalid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl
import scipy  # loads scipy.stats, which takes half a second, where losses are requested

from dumbbell import analysis
from dumbbell.chance import RARELY
from dumbbell.facts.check import Check, faultless
from dumbbell.kinds.found import FOUND
from dumbbell.kinds.found.base import Lost
from dumbbell.plan import Conditions, Flow, PlannedPath, Way
from dumbbell.run.content import Run, dig, ping_replies
from dumbbell.run.of_path import has_delay_line
from dumbbell.scenario.hosts import SUPER_PACKETS
from dumbbell.units import human
from dumbbell.validity.rows import devices, path_devices

Tables = Mapping[str, pl.DataFrame]

# Counters of struct rtnl_link_stats64 that grow with every packet that an interface loses or cannot send.
# Without rx_dropped: it also counts packets of protocols that no one receives, such as a switch's LLDP.
LINK_DROPS = (
    *("rx_errors", "tx_errors", "tx_dropped", "collisions", "rx_length_errors", "rx_over_errors"),
    *("rx_crc_errors", "rx_frame_errors", "rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors"),
    *("tx_carrier_errors", "tx_fifo_errors", "tx_heartbeat_errors", "tx_window_errors"),
)
# Counters of the network stack, by the names of nstat. A counter without a row did not change.
STACK_DROPS = (
    *("IpInDiscards", "IpOutDiscards", "IpReasmFails", "IpFragFails"),
    *("UdpRcvbufErrors", "UdpSndbufErrors", "UdpMemErrors"),
    *("TcpExtTCPBacklogDrop", "TcpExtTCPRcvQDrop", "TcpExtPFMemallocDrop", "TcpExtTCPZeroWindowDrop"),
    *("TcpExtPruneCalled", "TcpExtRcvPruned", "TcpExtOfoPruned", "TcpExtTCPOFODrop", "TcpExtTCPRetransFail"),
    *("TcpExtListenOverflows", "TcpExtListenDrops", "TcpExtTCPReqQFullDrop", "TcpExtTCPAbortOnMemory"),
    *("TcpExtTCPWqueueTooBig", "TcpExtTCPMemoryPressures"),
)
# Counts damaged packets, which some paths are asked to make.
DAMAGED = (
    "IpInHdrErrors",
    "UdpInErrors",
    "TcpInErrs",
    "TcpInCsumErrors",
    "UdpInCsumErrors",
    "IpExtInCsumErrors",
    "IcmpInCsumErrors",
)
SUPER_PACKET_SEGMENTS = 45  # packets of 1448 bytes in one of 64 kB
FEW = 10  # packets of a phase that no flow counts: they open and close its connections


def checks(run: Run, tables: Tables) -> Iterator[Check]:
    """A check of each sampled host and of each direction of the path."""
    measurement = run.point.phase("measurement")
    for host, part in measurement.hosts.items():
        if part.sample.link or part.sample.snmp or part.sample.cpu:
            yield _elsewhere(run, tables, host)
    path = run.point.path
    if path is None:
        return
    for way, _ in path.ways:
        yield from _asked_loss(run, tables, path, way)
        flows = [flow for flow in measurement.flows if flow.direction == way]
        if flows:
            yield from _budget(run, tables, path, way, flows)


def _grown(rows: pl.DataFrame, names: tuple[str, ...], series: tuple[str, ...]) -> dict[str, int]:
    """Growth of counters from their first row to their last, summed over series."""
    known = [name for name in names if name in rows.columns]
    if rows.is_empty() or not known:
        return {}
    grown = rows.sort("unix_ns").select(analysis.grown_u32(pl.col(name)).over(series).sum() for name in known)
    return {name: int(value or 0) for name, value in grown.row(0, named=True).items()}


def _measured(tables: Tables, name: str, host: str) -> pl.DataFrame:
    table = tables.get(name)
    if table is None or not {"phase", "host"} <= {*table.columns}:
        return pl.DataFrame()
    return table.filter(phase="measurement", host=host)


# --- drops that nobody requested ------------------------------------------------------------------


def _elsewhere(run: Run, tables: Tables, host: str) -> Check:
    return faultless("drops elsewhere", host, _drops(run, tables, host))


def _drops(run: Run, tables: Tables, host: str) -> Iterator[str]:
    """Counters that grew by more than the allowed share of the packets of the device or host."""
    sample = run.point.phase("measurement").hosts[host].sample
    if sample.link:
        yield from _at_interfaces(run, tables, host)
    if sample.queues or sample.qdisc:
        yield from _at_queues(run, tables, host)
    if sample.cpu:
        yield from _at_cores(run, tables, host)
    if sample.snmp:
        yield from _in_stack(run, tables, host)
    for flow in run.point.phase("measurement").flows:
        yield from FOUND[flow.kind].dropped_by_hosts(run, flow, host)


def _at_interfaces(run: Run, tables: Tables, host: str) -> Iterator[str]:
    links = _measured(tables, "link", host)
    for device in devices(run, host):
        rows = links.filter(dev=device) if not links.is_empty() else links
        if rows.height <= 1:
            yield f"{device}: its counters were not sampled"
            continue
        passed = sum(_grown(rows, ("rx_packets", "tx_packets"), ("dev",)).values())
        for name, count in _grown(rows, LINK_DROPS, ("dev",)).items():
            if count > run.point.validity.unexpected_drops * passed:
                yield f"{device}: {name} grew by {human(count)}"


def _at_queues(run: Run, tables: Tables, host: str) -> Iterator[str]:
    """Qdiscs that dropped packets, on interfaces outside the emulated path; an interface may have none."""
    queues = _measured(tables, "qdisc", host)
    emulates = path_devices(run.states.get(host))
    if queues.is_empty():
        return
    rows = queues.filter(pl.col("dev").is_in(sorted({*devices(run, host)} - emulates)))
    for (device, kind, handle), qdisc in rows.group_by("dev", "kind", "handle", maintain_order=True):
        grown = _grown(qdisc, ("packets", "drops"), ("parent",))
        dropped = grown.get("drops", 0)
        if dropped > run.point.validity.unexpected_drops * (grown.get("packets", 0) + dropped):
            yield f"{device}: its qdisc {kind} {handle} dropped {human(dropped)} packets"


def _at_cores(run: Run, tables: Tables, host: str) -> Iterator[str]:
    cores = _measured(tables, "cpu_core", host)
    grown = _grown(cores, ("softnet_dropped", "softnet_processed"), ("cpu",))
    dropped = grown.get("softnet_dropped")
    if dropped is None:
        yield "the packets that its cores dropped were not sampled"
    elif dropped > run.point.validity.unexpected_drops * grown.get("softnet_processed", 0):
        yield f"its cores dropped {human(dropped)} packets before its stack (softnet_dropped)"


def _in_stack(run: Run, tables: Tables, host: str) -> Iterator[str]:
    counters = _measured(tables, "snmp", host)
    if counters.is_empty() or "delta" not in counters.columns:
        yield "the counters of its network stack were not sampled"
        return
    moved = dict(counters.group_by("name").agg(pl.col("delta").sum()).iter_rows())
    # A retransmitted SYN-ACK counts as a TCP error and is challenged; its connection is established.
    moved["TcpInErrs"] = (moved.get("TcpInErrs") or 0) - (moved.get("TcpExtTCPSYNChallenge") or 0)
    # Datagrams of other hosts to the flows' ports are dropped by a filter, which the kernel counts as errors.
    strangers = dig(run.event("strangers", host=host, phase="measurement"), "packets") or 0
    moved["UdpInErrors"] = (moved.get("UdpInErrors") or 0) - strangers
    received = moved.get("IpInReceives") or 0
    path = run.point.path
    damages = path is not None and any(state.corrupt for _, way in path.ways for _, state in way.states)
    for name in STACK_DROPS if damages else (*STACK_DROPS, *DAMAGED):
        count = moved.get(name) or 0
        if count > run.point.validity.unexpected_drops * received:
            yield f"{name} grew by {human(count)}"


# --- loss that the path was asked for -------------------------------------------------------------


def _asked_loss(run: Run, tables: Tables, path: PlannedPath, way: Way) -> Iterator[Check]:
    """A delay line dropped a likely number of packets, given its random loss."""
    planned = path.way(way)
    states = planned.states
    for host in run.routers:
        device = dig(run.states.get(host), "path", "devices", way, "delay_line")
        rows = _measured(tables, "qdisc", host)
        lines = pl.DataFrame() if rows.is_empty() else rows.filter(kind="netem", dev=device or "")
        for (since, state), until in zip(states, [*(at for at, _ in states[1:]), None], strict=True):
            if not state.loses or not has_delay_line(
                planned, dig(run.states.get(host), "path", "trim_us") or 0
            ):
                continue
            # Samples taken while the conditions surely apply: a change takes a moment.
            begin = since + run.point.validity.start_error_ns if since else None
            own = lines if lines.is_empty() else _between(lines, begin, until)
            yield _of_state(f"{host} {way} from {human(since, 'ns')}", own, state)


def _between(rows: pl.DataFrame, begin: int | None, until: int | None) -> pl.DataFrame:
    rows = rows if begin is None else rows.filter(pl.col("t_ns") >= begin)
    return rows if until is None else rows.filter(pl.col("t_ns") < until)


def _of_state(subject: str, rows: pl.DataFrame, state: Conditions) -> Check:
    grown = _grown(rows, ("packets", "drops"), ("handle", "parent"))
    reason, low, high = "", 0, 0
    dropped = grown.get("drops")
    packets = grown.get("packets", 0) + (dropped or 0)
    mean = 1 - (1 - state.loss) * (1 - (state.loss_gemodel.mean if state.loss_gemodel else 0))
    if rows.height <= 1 or dropped is None:
        reason = "what its delay line dropped is not known: it was not sampled"
    else:
        low, high = loss_bounds(packets, state)
        if not low <= dropped <= high:
            reason = (
                f"its delay line dropped {human(dropped)} of {human(packets)} packets;"
                f" its loss of {human(mean, 'share')} makes {human(low)} to {human(high)} of them likely"
            )
    return Check(
        name="asked loss",
        kind="validity",
        subject=subject,
        requested=mean,
        measured=dropped / packets if dropped is not None and packets else None,
        tolerance=(high - low) / 2 / packets if packets else None,
        unit="share",
        ok=not reason,
        reason=reason,
    )


def loss_bounds(packets: int, state: Conditions) -> tuple[int, int]:
    """The least and most losses of so many packets in all but one of :data:`RARELY` runs.

    Single losses are binomial. Losses in bursts are correlated: the Markov chain that makes them increases
    the variance of their number.
    """
    tail = 1 / (2 * RARELY)
    bursts = state.loss_gemodel
    mean = 1 - (1 - state.loss) * (1 - (bursts.mean if bursts else 0))
    if not mean:
        return 0, 0
    if bursts is None or not packets:
        low, high = scipy.stats.binom.ppf([tail, 1 - tail], packets, mean)
        return max(0, int(low)), int(high)
    bad = bursts.p / (bursts.p + bursts.r) if bursts.p else 0.0
    spread = (bursts.loss_bad - bursts.loss_good) * (1 - state.loss)
    memory = max(0.0, 1 - bursts.p - bursts.r)
    variance = mean * (1 - mean) + 2 * spread**2 * bad * (1 - bad) * memory / max(1 - memory, 1 / packets)
    # Beyond the normal distribution, allow for the few bursts of a short time.
    away = float(scipy.stats.norm.isf(tail)) * math.sqrt(packets * variance) + 3 / max(bursts.r, 1 / packets)
    return max(0, math.floor(packets * mean - away)), min(packets, math.ceil(packets * mean + away))


# --- losses of flows ------------------------------------------------------------------------------


def _dropped(run: Run, tables: Tables, path: PlannedPath, way: Way) -> tuple[int | None, int]:
    """Packets that queue, policer and delay line of a direction dropped, and the time of the last sample."""
    total, last = 0, 0
    for host in run.routers:
        rows = _measured(tables, "qdisc", host)
        places = dig(run.states.get(host), "path", "devices", way) or {}
        out = places.get("delay_line")
        kinds = [(places.get("bottleneck"), path.way(way).queue.kind), (out, "police"), (out, "netem")]
        for device, kind in kinds:
            own = rows if rows.is_empty() else rows.filter(dev=device or "", kind=kind)
            grown = _grown(own, ("drops",), ("handle", "parent"))
            if not grown and (kind == kinds[0][1] or (kind == "police" and path.way(way).policer)):
                return None, 0
            total += grown.get("drops", 0)
            at: Any = own["t_ns"].max() if grown else None
            last = max(last, at or 0)
    return total, last


def _budget(run: Run, tables: Tables, path: PlannedPath, way: Way, flows: list[Flow]) -> Iterator[Check]:
    """The flows of a direction lost as many packets as its queue and delay line dropped."""
    dropped, last_ns = _dropped(run, tables, path, way)
    lost = {flow.name: FOUND[flow.kind].lost(run, tables, flow, last_ns) for flow in flows}
    known = {name: found for name, found in lost.items() if isinstance(found, Lost)}
    unknown = {name: found for name, found in lost.items() if isinstance(found, str) and found}
    sent = sum(found.sent for found in known.values())
    packets = sum(found.packets for found in known.values())
    unseen = sum(found.unseen for found in known.values())
    under_way = sum(found.under_way for found in known.values())
    again = sum(math.ceil(sent * (state.duplicate or 0)) for _, state in path.way(way).states)
    damaged = max(state.corrupt or 0 for _, state in path.way(way).states)
    most = math.ceil(run.point.validity.unexpected_drops * sent)
    reason, unexplained = "", None
    if dropped is None:
        reason = "what its queue and its policer dropped is not known: no router sampled them"
    elif unknown:
        reason = "; ".join(f"what {name} lost is not known: {why}" for name, why in unknown.items())
    elif known:
        by_path = dropped + _binomial_most(sent, damaged)
        if any(_put_together(run, flow) for flow in flows):
            by_path *= SUPER_PACKET_SEGMENTS
        unexplained = packets - dropped
        others = FEW + sum(_echoes_lost(run, path, way))
        one_way = len(known) == len(flows) and not _backward(run, way)
        if packets - again > by_path + unseen + most:
            elsewhere = human(packets - dropped)
            reason = f"its flows lost {human(packets)} of {human(sent)} packets, and the path dropped"
            reason += f" {human(dropped)}: {elsewhere} were lost at another place"
        elif one_way and dropped > packets + under_way + unseen + others + most + again:
            reason = (
                f"the path dropped {human(dropped)} packets, and its flows lost {human(packets)}:"
                " others than they were on it"
            )
    yield Check(
        name="lost elsewhere",
        kind="validity",
        subject=way,
        requested=0,
        measured=unexplained,
        tolerance=unseen + most,
        unit="packets",
        ok=not reason,
        reason=reason,
    )


def _binomial_most(packets: int, share: float) -> int:
    return int(scipy.stats.binom.ppf(1 - 1 / (2 * RARELY), packets, share)) if share and packets else 0


def _put_together(run: Run, flow: Flow) -> bool:
    """Whether an end merges segments into what the path counts as one packet."""
    for host in (flow.src_host, flow.dst_host):
        for nic in (dig(run.states.get(host), "nic") or {}).values():
            offloads = dig(nic, "offloads") or {}
            if any(offloads.get(name) is not False for name in SUPER_PACKETS if name in ("tso", "gso")):
                return True
    return False


def _backward(run: Run, way: Way) -> bool:
    """Whether data goes the other way, so that its ACKs go this way."""
    return any(flow.direction != way for flow in run.point.phase("measurement").flows)


def _echoes_lost(run: Run, path: PlannedPath, way: Way) -> Iterator[int]:
    for host, ping in run.pings("measurement"):
        came = len(ping_replies(run.raw(host, "measurement", f"ping-{ping.name}.txt")))
        yield max(0, ping.count - came)
