"""tcp: data over TCP between two agents. Both ends count, and so do their kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import polars as pl

from dumbbell.facts import documents
from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, close, fact, same
from dumbbell.kinds.found.shared import LATE_NS, Connections, began, foreign, of_measurement, time_sent
from dumbbell.plan import Flow, Phase
from dumbbell.run.content import Run, dig
from dumbbell.run.record import read_json

SECOND = 10**9
AHEAD_NS = 6 * SECOND  # the earliest that a stream is connected before its start
OPTIONS_BYTES = 40  # the most that the options of a segment take
SIDES = ("sender", "receiver")
NO_REPORT = "an end left no report"


class Tcp(Connections):
    """Both ends report each stream and the bytes of each second."""

    client: ClassVar[str] = "tcp_send"
    files: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tcp_send": ("tcp-{}-sender.json",),
        "tcp_receive": ("tcp-{}-receiver.json",),
    }
    documents: ClassVar[Mapping[str, type[documents.Document]]] = {
        "tcp-sender": documents.TcpSender,
        "tcp-receiver": documents.TcpReceiver,
    }

    def checks(self, of: Asked, flow: Flow) -> Iterator[Check]:
        """Checks of the start, what was sent, the options, and the connections."""
        yield from began(of, flow)
        told = {side: read_json(_file(of.run, flow, "measurement", side)) for side in SIDES}
        if flow.bytes:
            got = sum(dig(stream, "bytes") or 0 for stream in dig(told["receiver"], "streams") or [])
            yield same("bytes", flow.name, flow.bytes, got, what="bytes that arrived before its end")
        elif not _limited(flow):
            ends = [dig(stream, "last_unix_ns") for stream in dig(told["sender"], "streams") or []]
            t0 = of.run.t0_unix_ns("measurement")
            known = t0 is not None and bool(ends) and None not in ends
            yield from time_sent(of, flow, min(ends) - t0 - flow.start_ns if known else None, NO_REPORT)
        for side in SIDES:
            yield from _options(flow, side, told[side])
        yield from super().checks(of, flow)
        yield from _counted(of, flow, told["receiver"])

    def reports(self, run: Run, phase: Phase, flow: Flow) -> Iterator[str]:
        """Contradictions between the counts of both ends."""
        sent, got = (read_json(_file(run, flow, phase.phase, side)) for side in SIDES)
        if documents.faults(documents.TcpSender, sent, "") or documents.faults(
            documents.TcpReceiver, got, ""
        ):
            return  # the check of files reports this
        if len(sent["streams"]) != flow.streams or len(got["streams"]) != flow.streams:
            found = f"{len(sent['streams'])} of its sender and {len(got['streams'])} of its receiver"
            yield f"it has {found}, and was asked {flow.streams} streams"
            return
        pairs = list(zip(sent["streams"], got["streams"], strict=True))
        total = sum(one["bytes"] for one, _ in pairs)
        seconds = -(-(flow.duration_ns + LATE_NS) // SECOND)
        t0 = run.t0_unix_ns(phase.phase)
        for fine, fault in (
            (sent["asked_bytes"] == asked_bytes(flow), "the sender was not asked the plan's bytes"),
            (total <= (asked_bytes(flow) or total), "the sender sent more than it was asked"),
            (total == sum(sent["interval_bytes"]), "the sender's intervals do not have all of its bytes"),
            (
                sum(other["bytes"] for _, other in pairs) == sum(got["interval_bytes"]),
                "the receiver's intervals do not have all of its bytes",
            ),
            (
                all(len(told["interval_bytes"]) <= seconds for told in (sent, got)),
                "it has more intervals than its time has seconds",
            ),
            (
                all(
                    one["bytes"] == one["confirmed_bytes"] == other["bytes"]
                    if other["end_seen"]
                    else other["bytes"] <= one["bytes"] and not one["confirmed_bytes"]
                    for one, other in pairs
                ),
                "what one end sent is not what the other has got",
            ),
            (not got["foreign"], f"{got['foreign']} connections came that were none of its streams"),
            (t0 is None or _within(flow, sent, got, t0), "its times are not those of the plan"),
        ):
            if not fine:
                yield fault

    def foreign(self, run: Run, flow: Flow, phase: Phase) -> int:
        """Connections that were none of the flow's streams."""
        return foreign(_file(run, flow, phase.phase, "receiver"))

    def tables(self, run: Run, phase: Phase, flow: Flow) -> dict[str, pl.DataFrame]:
        """``tcp_intervals``: bytes of each second of both ends; times are since the t0 of the phase."""
        parts = []
        for side in SIDES:
            counts = dig(read_json(file := _file(run, flow, phase.phase, side)), "interval_bytes")
            if not isinstance(counts, list):
                raise ValueError(f"{file} has no interval_bytes")
            of = {"run": run.id, "phase": phase.phase, "flow": flow.name, "side": side}
            parts.append(
                pl.DataFrame({"bytes": counts}, {"bytes": pl.Int64})
                .with_row_index("second")
                .select(
                    *(pl.lit(text).alias(name) for name, text in of.items()),
                    t_ns=flow.start_ns + SECOND * pl.col("second").cast(pl.Int64),
                    bytes="bytes",
                )
            )
        return {"tcp_intervals": pl.concat(parts)}


def asked_bytes(flow: Flow) -> int:
    """What the application is asked to write until its end; 0 if only time limits it."""
    own = flow.own or {}
    due = flow.bytes or 0
    if flow.rate_bps:
        due = flow.rate_bps * flow.duration_ns // (8 * SECOND)
    elif "burst_bytes" in own:
        due = int(own["burst_bytes"]) * -(-flow.duration_ns // int(own["every_ns"]))
    return min(due, flow.bytes or due)


def _limited(flow: Flow) -> bool:
    """Whether its application at times has nothing to write."""
    return bool(flow.rate_bps or "burst_bytes" in (flow.own or {}))


def _file(run: Run, flow: Flow, phase: Any, side: str) -> Any:
    """The report of one end."""
    return run.raw(
        flow.src_host if side == "sender" else flow.dst_host, phase, f"tcp-{flow.name}-{side}.json"
    )


def _options(flow: Flow, side: str, told: Any) -> Iterator[Check]:
    """The sockets of an end had the requested options."""
    of_sender, both = side == "sender", flow.socket_buffer_bytes
    send, receive = (
        flow.send_buffer_bytes if of_sender else both,
        both if of_sender else flow.receive_buffer_bytes,
    )
    streams = dig(told, "streams") or []
    for name, key, asked in (
        ("congestion control", "congestion_control", flow.congestion_control),
        ("no_delay", "no_delay", (flow.own or {}).get("no_delay") == "true"),
        ("DSCP", "dscp", flow.dscp or 0),
        ("send buffer", "send_buffer_bytes", send and 2 * send),  # socket(7)
        ("receive buffer", "receive_buffer_bytes", receive and 2 * receive),
    ):
        if asked is not None:
            found = [dig(stream, key) for stream in streams]
            one = next((value for value in found if value != asked), asked) if found else None
            yield same(name, f"{flow.name} {side}", asked, one, what=name, missing=NO_REPORT)
    if flow.mss_bytes is not None:
        mss = flow.mss_bytes
        sizes = [dig(stream, "mss_bytes") or 0 for stream in streams]
        yield close(
            "MSS",
            f"{flow.name} {side}",
            mss,
            max(sizes, key=lambda size: abs(size - mss), default=None),
            tolerance=OPTIONS_BYTES,
            unit="bytes",
            what="MSS",
            missing=NO_REPORT,
        )


def _counted(of: Asked, flow: Flow, told: Any) -> Iterator[Check]:
    """The receiver's kernel counted what the receiver did; an end of data counts as a byte there."""
    rows = of_measurement(of.tables["tcp_info"]).filter(flow=flow.name, side="receiver")
    if not {"final", "bytes_received"} <= {*rows.columns}:
        return  # the check of rows reports this
    ends = rows.filter(pl.col("final").fill_null(value=False))
    if ends.height != flow.streams:
        return  # the check of ends reports this
    streams = dig(told, "streams") or []
    asked = sum(dig(stream, "bytes") or 0 for stream in streams)
    found = int(ends["bytes_received"].sum())
    ended = all(dig(stream, "end_seen") for stream in streams)
    # Data that came after an end that was not seen was not taken from the kernel.
    fine = asked <= found and (not ended or found <= asked + flow.streams)
    reason = "" if fine else f"the kernel counted {found} bytes, and the receiver {asked}"
    yield fact("bytes counted", flow.name, asked, found, unit="bytes", ok=not reason, reason=reason)


def _within(flow: Flow, sent: dict[str, Any], got: dict[str, Any], t0: int) -> bool:
    """Whether the times of both reports are in order, and in the flow's time."""
    start, latest = t0 + flow.start_ns, t0 + flow.end_ns + LATE_NS
    slack = SECOND  # between clocks
    both = [(told, stream) for told in (sent, got) for stream in told["streams"]]
    return all(
        start - slack <= stream["first_unix_ns"] <= stream["last_unix_ns"] <= told["unix_ns"] <= latest
        for told, stream in both
    ) and all(
        start - AHEAD_NS <= stream["connected_unix_ns"] <= stream["first_unix_ns"]
        for stream in sent["streams"]
    )


FOUND = {"tcp": Tcp()}
