"""What a plan asks for but likely does not mean: each warning has an id, and numbers of the plan.

A scenario acknowledges a warning by its id, with a reason (``acknowledge``). ``docs/warnings.md`` explains
each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from dumbbell.plan.order import ordered_delay_us
from dumbbell.plan.path import POLICER_S, datagram_headers_bytes
from dumbbell.scenario.acknowledge import WarningId
from dumbbell.scenario.hosts import SUPER_PACKETS
from dumbbell.units import human

if TYPE_CHECKING:  # it imports this module
    from dumbbell.plan.document import Flow, Plan, Point
    from dumbbell.plan.path import Conditions, PlannedPath

QUEUE_BDPS = (0.25, 8)  # of a queue without an AQM
MOST_RTTS = 10  # between two samples
SIGNIFICANT = 0.05
BUFFERS = (
    ("send_buffer", "net.ipv4.tcp_wmem", "src_host"),
    ("receive_buffer", "net.ipv4.tcp_rmem", "dst_host"),
)


class Warned(NamedTuple):
    """A warning: its id, and a sentence."""

    id: WarningId
    text: str

    def __str__(self) -> str:
        return f"{self.id}: {self.text}"


def of_plan(plan: Plan) -> list[Warned]:
    """All warnings of a plan, each once."""
    found = [*_few_repetitions(plan), *(warned for point in plan.points for warned in of_point(point))]
    return list(dict.fromkeys(found))


def of_point(point: Point) -> list[Warned]:
    """All warnings of a point."""
    checks: tuple[Callable[[Point], Iterator[Warned]], ...] = (_no_data, _put_together)
    found = [warned for check in checks for warned in check(point)]
    if point.path is not None:
        for of_path in (
            _order_kept,
            _jitter_reorders,
            _policer,
            _queue,
            _burst,
            _buffers,
            _udp,
            _outages,
            _sampling,
        ):
            found += of_path(point, point.path)
    return list(dict.fromkeys(found))


def _no_data(point: Point) -> Iterator[Warned]:
    if not point.phase("measurement").flows:
        yield Warned("no_data", "no flow sends data: pings find an idle path")


def _put_together(point: Point) -> Iterator[Warned]:
    on: dict[str, list[str]] = {}
    for host, asked in point.hosts.items():
        if names := ", ".join(name for name in SUPER_PACKETS if asked.state.offloads.get(name)):
            on.setdefault(names, []).append(host)
    states = [state for _, way in point.path.ways for _, state in way.states] if point.path else []
    hurt = dict.fromkeys(name for state in states for name in state.per_packet)
    if on and hurt:
        where = " and ".join(f"{names} of {', '.join(hosts)}" for names, hosts in on.items())
        yield Warned(
            "super_packets",
            f"{where} are asked to be on: {', '.join(hurt)} of the path then count what they put "
            "together, up to 64 kB, as one packet",
        )


def _states(path: PlannedPath) -> Iterator[tuple[str, int, Conditions]]:
    """The conditions of each direction at each time, with words for them and the ns since t0, but outages."""
    for name, way in path.ways:
        for at_ns, state in way.states:
            if state.outage:
                continue
            yield f"path.{name} from {human(at_ns, 'ns')}" if at_ns else f"path.{name}", at_ns, state


def _order_kept(point: Point, path: PlannedPath) -> Iterator[Warned]:
    for since, _, state in _states(path):
        if (mean_us := ordered_delay_us(state, path.packet_bytes)) is not None:
            yield Warned(
                "order_kept",
                f"{since}: keep_order holds packets back behind those with longer delays: at the "
                f"full rate the mean delay is about {human(1000 * mean_us, 'ns')}, asked are "
                f"{human(1000 * state.delay_us, 'ns')}, which only packets far apart have, such as "
                "those of the calibration",
            )


def _jitter_reorders(point: Point, path: PlannedPath) -> Iterator[Warned]:
    for since, _, state in _states(path):
        gap_ns = path.packet_bytes * 8e9 / state.rate_bps
        jitter_ns = 1000 * (state.jitter_us or 0)
        if jitter_ns > gap_ns and not state.keep_order:
            yield Warned(
                "jitter_reorders",
                f"{since}: packets follow each other within {human(gap_ns, 'ns')} at the full rate, and "
                f"a jitter of {human(jitter_ns, 'ns')} lets them overtake: TCP takes that for loss",
            )


def _policer(point: Point, path: PlannedPath) -> Iterator[Warned]:
    for since, _, state in _states(path):
        if state.policer is None:
            continue
        rate_bps, burst = state.policer.rate_bps, state.policer.burst_bytes
        needed = math.ceil(rate_bps * POLICER_S / 8)
        if burst < needed:
            yield Warned(
                "policer_burst",
                f"{since}: the policer's burst of {human(burst)} bytes holds "
                f"{human(8e9 * burst / rate_bps, 'ns')} of its rate: TCP, which sends in bursts, gets less "
                f"than {human(rate_bps, 'bps')}, and the less the longer its RTT; a tenth of a second's rate "
                f"is {human(needed)} bytes",
            )


def _burst(point: Point, path: PlannedPath) -> Iterator[Warned]:
    """A bottleneck with a large bucket never queues less than that: it passes at once."""
    for since, _, state in _states(path):
        limit = state.queue.limit_bytes or path.packet_bytes * (state.queue.limit_packets or 0)
        if state.burst_bytes is None:
            continue
        took_ns = 8e9 * state.burst_bytes / state.rate_bps
        if limit and state.burst_bytes > limit:
            yield Warned(
                "burst_above_queue",
                f"{since}: the bottleneck passes {human(state.burst_bytes)} bytes at once, more than its "
                f"queue of {human(limit)} bytes holds: after an idle time, {human(took_ns, 'ns')} of the "
                "rate pass as if there were no bottleneck",
            )


def _queue(point: Point, path: PlannedPath) -> Iterator[Warned]:
    for since, at_ns, state in _states(path):
        rtt_ns = 1000 * sum(way.at(at_ns).delay_us for _, way in path.ways)
        limit = state.queue.limit_bytes or path.packet_bytes * (state.queue.limit_packets or 0)
        bdp = state.rate_bps * rtt_ns / 8e9
        if state.queue.kind not in ("pfifo", "bfifo") or not limit or not bdp:
            continue
        # A limit in packets is rounded up.
        if limit < QUEUE_BDPS[0] * bdp or limit - path.packet_bytes > QUEUE_BDPS[1] * bdp:
            full_ns = limit * 8e9 / state.rate_bps
            yield Warned(
                "queue_far_from_bdp",
                f"{since}: its queue has room for {limit / bdp:.3g} BDP ({human(limit)} bytes; a BDP is "
                f"{human(round(bdp))}), and holds a packet for {human(full_ns, 'ns')} at the most, at an RTT "
                f"of {human(rtt_ns, 'ns')}",
            )


def _buffers(point: Point, path: PlannedPath) -> Iterator[Warned]:
    for flow in point.phase("measurement").flows:
        if "tcp" not in flow.protocols:
            continue
        rtt_ns = path.rtt_ns + 1000 * (flow.delay_us or 0)
        rate = min(path.way(flow.direction).capacity_bps, flow.rate_bps or math.inf)
        bdp_bytes = rate * rtt_ns / 8e9
        for name, size in _buffers_of(point, flow):
            room = size * flow.streams
            if room < bdp_bytes:
                allowed, rtt = human(8e9 * room / rtt_ns, "bps"), human(rtt_ns, "ns")
                yield Warned(
                    "buffer_below_bdp",
                    f"flow {flow.name}: {name} gives its streams {human(room)} bytes, and the BDP is "
                    f"{human(round(bdp_bytes))}: a window of that size allows {allowed} at an RTT of {rtt}",
                )


def _buffers_of(point: Point, flow: Flow) -> Iterator[tuple[str, int]]:
    """Names and bytes of the buffers that the scenario gives to the ends of a flow."""
    if flow.socket_buffer_bytes is not None:
        yield "socket_buffer", flow.socket_buffer_bytes
        return
    for option, sysctl, end in BUFFERS:
        host = getattr(flow, end)
        if (own := getattr(flow, f"{option}_bytes")) is not None:
            yield option, own
        elif (asked := point.hosts[host].state.sysctls.get(sysctl)) is not None:
            yield f"{sysctl} of {host}", int(asked.split()[-1])


def _udp(point: Point, path: PlannedPath) -> Iterator[Warned]:
    for flow in point.phase("measurement").flows:
        if flow.protocols != ("udp",) or flow.rate_bps is None or not flow.payload_bytes:
            continue
        payload_bps = max(flow.rate_bps, *(step.rate_bps for step in flow.rate_steps or []), 0)
        frame_bytes = flow.payload_bytes + datagram_headers_bytes(flow.src)  # which the bottleneck counts
        asked_bps = payload_bps * frame_bytes / flow.payload_bytes
        way = path.way(flow.direction)
        changes_ns = [at for at, state in way.states if not state.outage]
        least_bps = min(way.at(at).capacity_bps or math.inf for at in _times(flow, changes_ns))
        if asked_bps > least_bps:
            yield Warned(
                "udp_above_rate",
                f"flow {flow.name}: {human(asked_bps, 'bps')} with headers are more than the path's "
                f"{human(least_bps, 'bps')}: alone it loses {human(1 - least_bps / asked_bps, 'share')}",
            )


def _times(flow: Flow, changes_ns: list[int]) -> Iterator[int]:
    """The start of a flow, and the changes of its path while it runs."""
    yield flow.start_ns
    yield from (at for at in changes_ns if flow.start_ns < at < flow.end_ns)


def _outages(point: Point, path: PlannedPath) -> Iterator[Warned]:
    """What a flow of UDP sends into an outage, and the queue has no room for, is lost."""
    for name, way in path.ways:
        for at_ns, lasts_ns in way.outages:
            limit = way.at(at_ns).queue.limit_bytes or path.packet_bytes * (
                way.at(at_ns).queue.limit_packets or 0
            )
            for flow in point.phase("measurement").flows:
                if flow.direction != name or flow.protocols != ("udp",) or not flow.rate_bps or not limit:
                    continue
                sent = flow.rate_bps * _overlap_ns(flow, at_ns, lasts_ns) / 8e9
                if sent > limit:
                    yield Warned(
                        "outage_overflows",
                        f"flow {flow.name}: in the outage of path.{name} from {human(at_ns, 'ns')} it sends "
                        f"{human(round(sent))} bytes, and the queue has room for {human(limit)}: the rest is "
                        "lost, as drops of the queue",
                    )


def _overlap_ns(flow: Flow, at_ns: int, lasts_ns: int) -> int:
    return max(0, min(flow.end_ns, at_ns + lasts_ns) - max(flow.start_ns, at_ns))


def _sampling(point: Point, path: PlannedPath) -> Iterator[Warned]:
    phase = point.phase("measurement")
    if path.rtt_ns and phase.flows and phase.sampling_interval_ns > MOST_RTTS * path.rtt_ns:
        rtts, rtt = phase.sampling_interval_ns / path.rtt_ns, human(path.rtt_ns, "ns")
        yield Warned(
            "sampling_slow",
            f"samples are {human(phase.sampling_interval_ns, 'ns')} apart, {rtts:.3g} RTTs of {rtt}: what a "
            "window does between two of them is not seen",
        )


def _few_repetitions(plan: Plan) -> Iterator[Warned]:
    """A test of Mann and Whitney of n and n values has p of 2 / binomial(2n, n) at the least.

    Without repetitions no difference is asked for, and in virtual time each gives the same values again.
    """
    times = max((point.repetition for point in plan.points), default=1)
    if plan.virtual or times == 1 or len({point.id for point in plan.points}) == 1:
        return
    p = 2 / math.comb(2 * times, times)
    if p > SIGNIFICANT:
        fewest = next(n for n in range(times, 10) if 2 / math.comb(2 * n, n) <= SIGNIFICANT)
        yield Warned(
            "few_repetitions",
            f"{times} repetitions of each point show no difference between points, however large: p is at "
            f"least {p:.2g}; with {fewest} it can be below {SIGNIFICANT}",
        )
