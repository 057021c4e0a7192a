"""Both programs of a flow had what they were asked, and came to the end that was planned."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dumbbell.plan import Flow
from dumbbell.run.content import (
    dig,
)
from dumbbell.run.directory import read_json, read_jsonl
from dumbbell.run.of_flows import (
    client_report,
    sent_bps,
)
from dumbbell.units import human
from dumbbell.validity.answers import FOREIGN
from dumbbell.validity.asked import Asked, lost_share
from dumbbell.validity.check import Check, close, fact, same
from dumbbell.validity.sampling import sampled

NDT = {"ndt7_download": "Download", "ndt7_upload": "Upload"}  # kinds, and what their client calls them


def iperf3(of: Asked, flow: Flow) -> Iterator[Check]:
    """The client sent for its whole time, over sockets with the options that were asked for."""
    report, missing = client_report(of.run, flow), "iperf3 left no report"
    if not flow.bytes:
        seconds = dig(report, "end", "sum_sent", "seconds")
        sent_ns = None if seconds is None else round(1e9 * seconds)
        reason = ""
        if sent_ns is None:
            reason = f"time for which iperf3 sent not known: {missing}"
        elif sent_ns < flow.duration_ns - of.point.validity.start_error_ns:
            least = human(flow.duration_ns, "ns")
            reason = f"time for which iperf3 sent is {human(sent_ns, 'ns')}, asked at least {least}"
        yield fact("time sent", flow.name, flow.duration_ns, sent_ns, unit="ns", ok=not reason, reason=reason)
    if flow.kind == "iperf3_udp":
        yield from _rate_sent(of, flow, missing)
    start = dig(report, "start")
    double = None if flow.socket_buffer_bytes is None else 2 * flow.socket_buffer_bytes  # socket(7)
    for name, asked, found in (
        ("MSS", flow.mss_bytes, dig(start, "tcp_mss")),
        ("send buffer", double, dig(start, "sndbuf_actual")),
        ("receive buffer", double, dig(start, "rcvbuf_actual")),
        ("DSCP", flow.dscp, (dig(start, "test_start", "tos") or 0) // 4 if start else None),
    ):
        if asked is not None:
            yield same(name, flow.name, asked, found, what=name, missing=missing)


def datagrams(of: Asked, flow: Flow) -> Iterator[Check]:
    """The sender kept to the plan's rate, and the receiver knows all that was lost."""
    yield from _rate_sent(of, flow, "the sender left no result")
    got = read_json(of.run.raw(flow.dst_host, "measurement", f"udp-{flow.name}-receiver.json"))
    missing = "the receiver left no result" if got is None else "no end marker came"
    end = "seen" if dig(got, "end_seen") else None
    missing += ": what was lost at the end is not known"
    yield same("end of datagrams", flow.name, "seen", end, what="end of its datagrams", missing=missing)


def _rate_sent(of: Asked, flow: Flow, missing: str) -> Iterator[Check]:
    """Of datagrams, against the plan; one more or less is no error."""
    asked_bps = flow.mean_rate_bps or 0
    one_bps = 8e9 * (flow.payload_bytes or 0) / flow.duration_ns
    yield close(
        "rate sent",
        flow.name,
        asked_bps,
        sent_bps(of.run, flow),
        tolerance=max(of.point.validity.rate_tolerance * asked_bps, one_bps),
        unit="bps",
        what="rate sent",
        missing=missing,
    )


def fetches(of: Asked, flow: Flow, fetched: pl.DataFrame) -> Iterator[Check]:
    """All that were asked for were done in full, and the server's kernel has told of each.

    Where no number is asked for, it is all that the flow's end did not cut, and one at the least.
    """
    result = read_json(of.run.raw(flow.client_host, "measurement", f"http-{flow.name}-receiver.json"))
    begun, cut = dig(result, "begun"), dig(result, "cut")
    asked, reason = flow.fetches, ""
    if begun is None or cut is None:
        reason = "the client left no result: it is not known which fetches have begun"
    elif asked is None:
        asked = max(1, begun - cut)
    done = fetched.filter(pl.col("done") & (pl.col("received_bytes") == flow.fetch_bytes))
    if not reason and done.height != asked:
        reason = f"{done.height} of {asked} fetches were done"
        if (failures := fetched["error"].drop_nulls()).len():
            reason += f", {failures.len()} failed, the first: {failures[0]}"
    yield fact("fetches", flow.name, asked, done.height, ok=not reason, reason=reason)
    if done.is_empty():
        return
    served, connections = done["segments"].count(), done["connect_ns"].count()
    yield same("fetches served", flow.name, done.height, served, what="fetches of which the server told")
    wanted = 1 if flow.persistent else done.height
    yield same("connections", flow.name, wanted, connections, what="connections")


def atou(of: Asked, flow: Flow, tcp_info: pl.DataFrame) -> Iterator[Check]:
    """Both ends had what they were asked, and came to the end that was planned; all of it was told."""
    told = read_json(of.run.raw(flow.src_host, "measurement", f"atou-{flow.name}-sender.json"))
    received = read_jsonl(of.run.raw(flow.dst_host, "measurement", f"atou-{flow.name}-receiver.json"))
    for side, asked, text in (
        ("sender", flow.sender, dig(told, "config")),
        ("receiver", flow.receiver, dig(told, "receiver_config")),
    ):
        lines = dict(line.split(" ", 1) for line in text.splitlines()) if text else {}
        found = {key: _like_word(lines.get(key), value) for key, value in (asked or {}).items()}
        yield same(
            "configuration",
            f"{flow.name} {side}",
            asked or {},
            found if lines else None,
            what=f"configuration of its {side}",
            missing=dig(told, "error") or "the sender left no report with it",
        )
    segments = int((flow.sender or {}).get("maxpkts", "0"))
    if not segments or (dig(told, "snd_una") or 0) < segments:  # which end it earlier
        yield close(
            "transfer",
            flow.name,
            flow.duration_ns,
            dig(told, "elapsed_ns"),
            tolerance=of.point.validity.start_error_ns,
            unit="ns",
            what="duration of the transfer",
            missing="the sender left no report",
        )
    yield close(
        "lines lost",
        flow.name,
        0,
        dig(told, "lost_lines"),
        tolerance=0,
        unit="",
        what="number of lines of trace, events and samples that were not written",
        missing="the sender left no report",
    )
    end = received[-1] if len(received) == 1 else None
    missing = {
        "sender": "the sender left no report",
        "receiver": f"the receiver told of {len(received)} flows",
    }
    unsent, acks = dig(end, "unsent_acks"), dig(end, "acks_sent")  # of which unsent are a part
    drops = of.point.validity.unexpected_drops
    for name, side, share, most, what in (
        (
            "socket drops",
            "sender",  # windows grow by the ACK
            lost_share(dig(told, "path", "socket_drops"), dig(told, "pkts_in")),
            drops,
            "ACKs that found the sender's socket full",
        ),
        (
            "socket drops",
            "receiver",
            lost_share(dig(end, "socket_drops"), dig(end, "arrived_segments")),
            drops,
            "segments that found the receiver's socket full",
        ),
        (
            "foreign",
            "receiver",
            lost_share(dig(end, "foreign"), dig(end, "arrived_segments")),
            FOREIGN,
            "datagrams that were of no flow, or of another one",
        ),
        (
            "unsent ACKs",
            "receiver",
            None if unsent is None or acks is None else unsent / max(acks, 1),
            drops,
            "ACKs that the receiver's host refused",
        ),
    ):
        yield close(
            name,
            f"{flow.name} {side}",
            0,
            share,
            tolerance=most,
            unit="share",
            what=f"share of {what}",
            missing=missing[side],
        )
    end_ns = flow.start_ns + (dig(told, "elapsed_ns") or flow.duration_ns)
    yield from sampled(of, flow, "sender", tcp_info.filter(flow=flow.name, side="sender"), end_ns)


def ndt(of: Asked, flow: Flow) -> Iterator[Check]:
    """Whether the client has told what came of the whole test."""
    file = of.run.raw(flow.client_host, "measurement", f"command-{flow.name}-client.txt")
    told = read_jsonl(file)
    throughput = dig(told[-1], NDT[flow.kind], "Throughput", "Value") if told else None
    found = None if throughput is None else float(throughput) * 1e6
    reason = "" if found else "the client did not come to the end of its test"
    yield fact("NDT throughput", flow.name, None, found, unit="bps", ok=not reason, reason=reason)


def _like_word(found: str | None, asked: str) -> str | None:
    """A value of atou's as it was asked for if it is the same: it may be written, or ordered, otherwise."""
    if found is None or found == asked:
        return found
    try:
        same = sorted(map(float, found.split(","))) == sorted(map(float, asked.split(",")))
    except ValueError:
        return found
    return asked if same else found
