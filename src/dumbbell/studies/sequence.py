"""What a sender sent and what came back, by sequence number: from a capture, or from a trace."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import polars as pl

from dumbbell.ingest.capture import ACK, SYN, Capture
from dumbbell.plan import Flow
from dumbbell.plan.actions import CaptureAction
from dumbbell.studies.source import Missing, Source

MOST = 20_000  # segments and ACKs that can be drawn
_SEGMENT = {"t_ns": pl.Int64, "begin": pl.Int64, "end": pl.Int64}
_LINE = {"t_ns": pl.Int64, "y": pl.Int64}


class TimeSequence(NamedTuple):
    """One connection over a time, in ns since t0. Numbers count from its first byte, or segment of atou."""

    source: str
    unit: str  # of the axis: kB of bytes, or segments
    since_ns: int
    until_ns: int
    sent: pl.DataFrame  # [t_ns, begin, end, again]; again: all of it or a part had been sent before
    acked: pl.DataFrame  # [t_ns, y]
    window: pl.DataFrame  # [t_ns, y]: up to where the receiver allows to send; of some sources empty
    sacked: pl.DataFrame  # [t_ns, begin, end]


def time_sequence(
    source: Source, flow_name: str, since_ns: int, until_ns: int, *, stream: int = 0, host: str = ""
) -> TimeSequence:
    """A connection of a flow: from a capture nearest to its sender, or at ``host``; else from a trace.

    Of several connections the ``stream``-th by the data that they carry, most first. Missing without either,
    or if more than :data:`MOST` segments would have to be drawn.
    """
    flows = {flow.name: flow for flow in source.planned_flows}
    if flow_name not in flows:
        raise Missing(f"There is no flow {flow_name}; there are {', '.join(flows)}.")
    flow = flows[flow_name]
    for place, path in _captures(source, flow, host):
        found = _of_capture(source, flow, path, place, since_ns, until_ns, stream)
        if found is not None:
            return _not_too_much(found)
    traced = _of_atou(source, flow, since_ns, until_ns) or _of_probe(source, flow, since_ns, until_ns, stream)
    if traced is None:
        raise Missing(
            f"Nothing told each segment of {flow_name}: ask for sampling.trace or a capture in its scenario."
        )
    return _not_too_much(traced)


def _not_too_much(found: TimeSequence) -> TimeSequence:
    many = found.sent.height + found.acked.height
    if many > MOST:
        span_ns = (found.until_ns - found.since_ns) * MOST // many
        raise Missing(
            f"{many} segments and ACKs are too many to draw: ask for less time, say {span_ns / 1e9:.2g} s."
        )
    if not many:
        raise Missing(f"The flow sent nothing from {found.since_ns / 1e9:g} to {found.until_ns / 1e9:g} s.")
    return found


def _captures(source: Source, flow: Flow, host: str) -> list[tuple[str, Path]]:
    """Where packets were captured, and the file: the sender's host first, its receiver's last.

    Of several captures of one host, such as those at both sides of a router, first the one that saw the
    sender's packets first.
    """
    order = {flow.src_host: 0, flow.dst_host: 2}
    found = []
    for name, own in source.plan.phase("measurement").hosts.items():
        for action in own.actions:
            if isinstance(action, CaptureAction) and host in ("", name):
                path = source.dir / f"raw/{name}/measurement/capture-{action.name}.pcap"
                if path.exists():
                    found.append((order.get(name, 1), name, _first_seen_ns(path, flow), action.name, path))
    return [(f"{name} {device}", path) for _, name, _, device, path in sorted(found)]


def _first_seen_ns(path: Path, flow: Flow) -> float:
    """When a capture saw the flow's sender first; infinity if it did not, or cannot be read."""
    try:
        blocks = (block.filter(_is_of(flow), src=flow.src) for block in Capture.open(path).segments())
        return next((int(block["unix_ns"][0]) for block in blocks if block.height), math.inf)
    except (OSError, ValueError):
        return math.inf


def _is_of(flow: Flow) -> pl.Expr:
    """Whether a captured segment is of a flow."""
    of = pl.col("src").is_in([flow.src, flow.dst]) & pl.col("dst").is_in([flow.src, flow.dst])
    ports = [port for port in flow.ports if port]
    return of & (pl.col("src_port").is_in(ports) | pl.col("dst_port").is_in(ports)) if ports else of


def _of_capture(  # noqa: PLR0917
    source: Source, flow: Flow, path: Path, place: str, since_ns: int, until_ns: int, stream: int
) -> TimeSequence | None:
    t0 = source.opened.t0_unix_ns("measurement")
    if t0 is None:
        return None
    ends = ("src", "src_port", "dst", "dst_port")
    back = ("dst", "dst_port", "src", "src_port")
    try:
        capture = Capture.open(path)
        rows = pl.concat([block.filter(_is_of(flow)) for block in capture.segments()])
    except (OSError, ValueError) as error:
        raise Missing(f"The capture at {place} cannot be read: {error}.") from None
    sent = rows.filter(pl.col("payload_bytes") > 0, src=flow.src)
    sizes = (
        sent.group_by(ends).agg(pl.col("payload_bytes").sum()).sort("payload_bytes", *ends, descending=True)
    )
    if stream >= sizes.height:
        return None
    connection = sizes.row(stream, named=True)
    of = [pl.col(name) == connection[name] for name in ends]
    to = [pl.col(other) == connection[name] for name, other in zip(ends, back, strict=True)]
    at = (pl.col("unix_ns") - t0).alias("t_ns")
    out = rows.filter(*of).with_columns(at).sort("at")
    came = rows.filter(*to, (pl.col("flags") & ACK) > 0).with_columns(at).sort("at")
    first = _number(out.filter((pl.col("flags") & SYN) > 0)["seq"], 1)
    if first is None:
        first = _number(out.filter(pl.col("payload_bytes") > 0)["seq"], 0)
    if first is None:
        return None
    begin, ack = _since(pl.col("seq"), first), _since(pl.col("ack"), first)
    data = out.filter(pl.col("payload_bytes") > 0).select("t_ns", begin=begin, size="payload_bytes")
    data = data.with_columns(end=pl.col("begin") + pl.col("size"))
    again = pl.col("begin") < pl.col("end").cum_max().shift(1, fill_value=0)
    data = data.select(*_SEGMENT, again=again)
    inside = pl.col("t_ns").is_between(since_ns, until_ns)
    # Of a SYN the window is not scaled, and its number is not of data.
    opened = came.filter((pl.col("flags") & SYN) > 0)["at"]
    shift = next(((told.shift or 0) for told in capture.told(opened.head(1))), 0)
    acks = came.filter((pl.col("flags") & SYN) == 0).with_columns(y=ack).filter(inside)
    told = list(capture.told(acks["at"])) if acks.height <= MOST else []
    sacked, edges = [], []
    for t_ns, y, header in zip(acks["t_ns"], acks["y"], told, strict=False):
        edges.append((t_ns, y + (header.window << shift)))
        sacked += [(t_ns, *(_wrapped(edge - first, y) for edge in block)) for block in header.sacked]
    return TimeSequence(
        f"capture at {place}",
        "kB",
        since_ns,
        until_ns,
        data.filter(inside),
        acks.select(*_LINE).with_columns(pl.col("y").cum_max()),
        pl.DataFrame(edges, _LINE, orient="row").sort("t_ns"),
        pl.DataFrame(sacked, _SEGMENT, orient="row"),
    )


def _number(values: pl.Series, more: int) -> int | None:
    return None if values.is_empty() else (int(values[0]) + more) % (1 << 32)


def _since(number: pl.Expr, first: int) -> pl.Expr:
    """32-bit sequence numbers as bytes since the first, through all wraps."""
    of = (number.cast(pl.Int64) - first) % (1 << 32)
    step = (of - of.shift(1, fill_value=0) + (1 << 31)) % (1 << 32) - (1 << 31)
    return step.cum_sum()


def _wrapped(number: int, near: int) -> int:
    """A number, of which the lowest 32 bits are known, that is nearest to another."""
    return near + (number - near + (1 << 31)) % (1 << 32) - (1 << 31)


def _of_probe(source: Source, flow: Flow, since_ns: int, until_ns: int, stream: int) -> TimeSequence | None:
    """From tcp_probe, which tells of a sender when a segment arrives; what it sends is seen at the next."""
    own = (pl.col("flow") == flow.name) & (pl.col("side") == "sender")
    try:
        columns = ("stream", "t_ns", "snd_nxt", "snd_una", "snd_wnd")
        probes = source.table("tcp_probe", *columns, where=own).sort("t_ns")
    except Missing:
        return None
    sizes = probes.group_by("stream").agg(pl.len()).sort("len", "stream", descending=[True, False])
    if stream >= sizes.height or not set(columns) <= set(probes.columns):
        return None
    name = sizes["stream"][stream]
    probes = probes.filter(pl.col("stream") == name)
    first = int(probes["snd_una"][0])
    nxt, una = _since(pl.col("snd_nxt"), first), _since(pl.col("snd_una"), first)
    probes = probes.select("t_ns", "snd_wnd", nxt=nxt, una=una)
    inside = pl.col("t_ns").is_between(since_ns, until_ns)
    new = probes.with_columns(begin=pl.col("nxt").shift(1)).filter(pl.col("nxt") > pl.col("begin"))
    new = new.select("t_ns", "begin", end="nxt", again=False).filter(inside)
    probes = probes.filter(inside)
    again = pl.DataFrame(schema=_SEGMENT | {"again": pl.Boolean})
    try:  # a retransmission has no number there: the first that is missing is what is sent again first
        events = source.rows(
            "tcp_event", "t_ns", "stream", "event", where=own & (pl.col("event") == "retransmit")
        )
        events = events.filter(inside, pl.col("stream") == name).select("t_ns").sort("t_ns")
        at = events.join_asof(probes.select("t_ns", "una"), on="t_ns").drop_nulls()
        again = at.select("t_ns", begin="una", end="una", again=True)
    except Missing:
        pass
    return TimeSequence(
        "tcp_probe at its sender, where each segment arrived",
        "kB",
        since_ns,
        until_ns,
        pl.concat([new, again]),
        probes.select("t_ns", y="una"),
        probes.select("t_ns", y=pl.col("una") + pl.col("snd_wnd")),
        pl.DataFrame(schema=_SEGMENT),
    )


def _of_atou(source: Source, flow: Flow, since_ns: int, until_ns: int) -> TimeSequence | None:
    """From the trace of atou's sender, which has each segment and each ACK."""
    if flow.kind != "atou":
        return None
    try:
        rows = source.rows("atou_trace", where=pl.col("flow") == flow.name)
    except Missing:
        return None
    inside = pl.col("t_ns").is_between(since_ns, until_ns)
    sent = rows.filter(pl.col("kind").is_in(["xmt", "rxt"])).select("t_ns", begin="segment")
    again = pl.col("begin") <= pl.col("begin").cum_max().shift(1, fill_value=-1)
    sent = sent.with_columns(end=pl.col("begin") + 1, again=again)
    acks = rows.filter(pl.col("kind") == "ack").select("t_ns", y="segment")
    empty = pl.DataFrame(schema=_LINE)
    return TimeSequence(
        "trace of atou's sender",
        "segments",
        since_ns,
        until_ns,
        sent.filter(inside),
        acks.filter(inside),
        empty,
        pl.DataFrame(schema=_SEGMENT),
    )
