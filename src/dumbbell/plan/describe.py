"""Prints a plan for people: points, flows over time, and each host's actions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from dumbbell.inventory import InventoryError
from dumbbell.plan.actions import (
    Action,
    CaptureAction,
    FlowAction,
    PathAction,
    PingAction,
    TcpListenAction,
    TcpPingAction,
)
from dumbbell.plan.document import Flow, Phase, Plan, Point
from dumbbell.plan.path import Conditions
from dumbbell.plan.virtual import only_full, real_s
from dumbbell.units import human
from dumbbell.words import columns

WIDTH = 60  # columns of a time axis
LINE = 118  # columns of a warning
TICKS = 6
MOST_NAMED = 8  # the most flows that are named for a host
ACTIVE, IDLE = "#", "-"


def describe(plan: Plan, point: str | None = None) -> str:
    """All points, then one of them in detail, chosen by its id; ``all`` for every one, None for the first."""
    points = {p.id: p for p in reversed(plan.points)}
    shown = list(reversed(points.values())) if point == "all" else [points[point]] if point in points else []
    if point is None:
        shown = plan.points[:1]
    if not shown:
        raise InventoryError(f"{plan.scenario} has no point {point}; it has {', '.join(points)}")
    parts = [_overview(plan), *map(_detail, shown)]
    return "\n\n".join("\n".join(part) for part in parts)


def in_real_time(plan: Plan) -> str:
    """About how long a plan in virtual time takes, and why it needs full worlds if it does."""
    minutes = ceil(real_s(plan.points) / 60)
    full = f"; full worlds, which {' and '.join(lacking)} need" if (lacking := only_full(plan.points)) else ""
    return f"in virtual time: about {clock(minutes * 60 * 10**9)} of a core, points side by side on all{full}"


def _overview(plan: Plan) -> Iterator[str]:
    distinct = len({point.id for point in plan.points})
    count = f"{len(plan.points)} runs of {distinct} points" if len(plan.points) > 1 else "1 point"
    profile = f", profile {plan.profile}" if plan.profile else ""
    yield f"{plan.scenario}{profile}: {plan.title}"
    yield f"{count}, {clock(plan.duration_ns)} of traffic; preparing the hosts comes on top"
    if plan.virtual:
        yield in_real_time(plan)
    for warning in plan.told_warnings:
        yield from textwrap.wrap(f"warning: {warning}", LINE, subsequent_indent="  ", break_on_hyphens=False)
    yield ""
    rows = [("", "point", "repetition", "takes", "")]
    for i, point in enumerate(plan.points, start=1):
        rows.append((str(i), point.id, str(point.repetition), clock(point.duration_ns), point.label))
    yield from columns(rows)


def _detail(point: Point) -> Iterator[str]:
    yield f"point {point.id} {point.label}".rstrip()
    if point.path is not None:
        yield f"  path: RTT {human(point.path.rtt_ns, 'ns')}"
        for name, way in point.path.ways:
            for at_ns, conditions in way.states:
                since = f"from {at_ns / 1e9:g} s: " if at_ns else ""
                told = conditions.model_dump(include=set(Conditions.model_fields))
                yield f"    {name} {since}{in_words(told)}"
    for phase in point.phases:
        yield f"  {phase.phase}: {clock(phase.duration_ns)}"
        yield from _gantt(phase)
        for host, part in phase.hosts.items():
            sources = {"queues": part.sample.qdisc, "trace": part.sample.trace, "ebpf": part.sample.ebpf}
            flows = part.sample.tcp
            named = flows if len(flows) <= MOST_NAMED else [f"{len(flows)} flows"]
            samples = [*named, *(name for name, asked in sources.items() if asked)]
            yield f"    {host}" + (f", samples {', '.join(samples)}" if samples else "")
            for action in part.actions:
                yield f"      {action.at_ns / 1e9:8.3f} s  {_action(action)}"
                yield from textwrap.wrap(
                    _asked_of(phase, action), 120, initial_indent=" " * 18, subsequent_indent=" " * 18
                )


def in_words(asked: Mapping[str, Any]) -> str:
    """The conditions that are requested of a direction at first, in words."""
    asked = {key: value for key, value in asked.items() if value and key not in ("at_ns", "changes")}
    queue = {key: value for key, value in asked.pop("queue").items() if value is not None}
    rate = "an outage" if asked.pop("outage", None) else human(asked.pop("rate_bps"), "bps")
    first = [rate, human(asked.pop("delay_us", 0) * 1000, "ns")]
    policer, burst, slot = (asked.pop(name, None) for name in ("policer", "burst_bytes", "slot"))
    first += [f"bursts of {human(burst)} bytes"] if burst else []
    if policer:
        rate, size = human(policer["rate_bps"], "bps"), human(policer["burst_bytes"])
        first.append(f"policed to {rate} with bursts of {size} bytes")
    first += [f"slots of {human(slot['min_us'] * 1000, 'ns')}"] if slot else []
    own_us = sorted({flow["delay_us"] for flow in asked.pop("flows", [])})
    others = [_asked(key, value) for key, value in asked.items()]
    own = ["own delays " + " and ".join(human(us * 1000, "ns") for us in own_us)] if own_us else []
    kind, limits = queue.pop("kind"), [_asked(key, value) for key, value in queue.items()]
    return ", ".join([*first, *others, *own, kind, *limits])


def _asked(key: str, value: Any) -> str:
    """``limit_packets: 166`` as ``166 packets``, ``loss: 0.01`` as ``loss 1 %``."""
    if key.startswith("limit_"):
        return f"{value} {key.removeprefix('limit_')}"
    if key.endswith("_us"):
        return f"{key.removesuffix('_us')} {human(value * 1000, 'ns')}"
    return f"{key} {human(value, 'share' if isinstance(value, float) else '')}"


def _asked_of(phase: Phase, action: Action) -> str:
    """The configuration that is requested of an end of atou."""
    if not isinstance(action, FlowAction) or action.kind not in ("atou_send", "atou_serve"):
        return ""
    (flow,) = (flow for flow in phase.flows if flow.name == action.flow)
    asked = flow.sender if action.kind == "atou_send" else flow.receiver
    return ", ".join(f"{key} {value}" for key, value in (asked or {}).items())


def _action(action: Action) -> str:
    if isinstance(action, PingAction):
        return f"ping {action.dst}, {action.count} times every {human(action.interval_ns, 'ns')}"
    if isinstance(action, TcpPingAction):
        every = human(action.interval_ns, "ns")
        return f"tcp_ping {action.dst}:{action.dst_port}, {action.count} times every {every}"
    if isinstance(action, TcpListenAction):
        return f"tcp_listen {action.dst_port}"
    return f"{action.kind} {action.name if isinstance(action, PathAction | CaptureAction) else action.flow}"


# --- flows over time ------------------------------------------------------------------------------


def _gantt(phase: Phase) -> Iterator[str]:
    rows = []
    for flow in phase.flows:
        src_port, dst_port = (port or "*" for port in flow.ports)
        ends = f"{flow.src_host}:{src_port} > {flow.dst_host}:{dst_port}"
        rows.append((f"    {flow.name}", _kind(flow), ends, "|" + _bar(flow, phase.duration_ns) + "|"))
    for host, part in phase.hosts.items():
        for ping in part.actions:
            if isinstance(ping, PingAction) and phase.phase == "measurement":
                end = ping.at_ns + ping.count * ping.interval_ns
                bar = _row(phase.duration_ns, [(ping.at_ns, end, ACTIVE)])
                rows.append((f"    {ping.name}", "ping", f"{host} > {ping.dst}", f"|{bar}|"))
    if not rows:
        return
    lines = columns(rows)
    yield from lines
    indent = lines[0].index("|") + 1
    ticks = [round(i * WIDTH / TICKS) for i in range(TICKS + 1)]
    axis = [" "] * (WIDTH + 12)
    for i, column in enumerate(ticks):
        text = f"{round(phase.duration_ns * i / TICKS / 1e9, 1):g}"
        axis[column : column + len(text)] = text
    yield " " * indent + "".join(axis).rstrip() + " s"


def _kind(flow: Flow) -> str:
    words = [flow.kind, flow.congestion_control or ""]
    if flow.rate_bps:
        words.append(human(flow.rate_bps, "bps"))
    if flow.bytes:
        words.append(f"{flow.bytes} bytes")
    if flow.own and "burst_bytes" in flow.own:
        words.append(f"{flow.own['burst_bytes']} bytes each {human(int(flow.own['every_ns']), 'ns')}")
    if flow.delay_us:
        words.append(f"+{human(flow.delay_us * 1000, 'ns')}")
    if flow.fetch_bytes:
        words.append(f"{flow.fetches or ''} fetches of {flow.fetch_bytes} bytes".strip())
    if flow.transfers:
        total = human(sum(transfer.bytes for transfer in flow.transfers))
        words.append(f"{len(flow.transfers)} transfers of {total} bytes in all")
    if flow.streams > 1:
        words.append(f"x{flow.streams}")
    return " ".join(filter(None, words))


def _bar(flow: Flow, total_ns: int) -> str:
    """A bar that shows when a flow is active, and when it exists but is idle."""
    changes = [(flow.start_ns, flow.rate_bps if flow.kind == "udp" else 1)]
    changes += [(flow.start_ns + step.at_ns, step.rate_bps) for step in flow.rate_steps or []]
    ends = [at for at, _ in changes[1:]] + [flow.end_ns]
    spans = [(at, end, ACTIVE if rate else IDLE) for (at, rate), end in zip(changes, ends, strict=True)]
    return _row(total_ns, spans)


def _row(total_ns: int, spans: Sequence[tuple[int, int, str]]) -> str:
    """One character for each column of the axis: that of the span which fills most of it."""
    row = []
    for column in range(WIDTH):
        begin, end = total_ns * column / WIDTH, total_ns * (column + 1) / WIDTH
        filled = {" ": (end - begin) / 2}
        for start, stop, mark in spans:
            filled[mark] = filled.get(mark, 0) + max(0, min(stop, end) - max(start, begin))
        row.append(max(filled, key=lambda mark: filled[mark]))
    return "".join(row)


def clock(ns: int) -> str:
    """``1 h 2 min 3.5 s``."""
    minutes, seconds = divmod(ns / 1e9, 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [(f"{hours} h", hours), (f"{minutes} min", minutes), (f"{seconds:.3g} s", seconds)]
    return " ".join(text for text, value in parts if value) or "0 s"
