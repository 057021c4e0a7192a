"""tcp and iperf3_udp: flows of iperf3."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import polars as pl

from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, same
from dumbbell.kinds.found.base import Counted, End, Found, Key, Lost, Tables, share
from dumbbell.kinds.found.shared import (
    Connections,
    began,
    rate_sent,
    time_sent,
)
from dumbbell.plan import Flow, Phase
from dumbbell.run.content import Run, dig
from dumbbell.run.record import read_json

SECOND = 10**9
LATE_NS = 60_000_000_000  # a client has stopped sending this long after its end


class _Iperf3(Found):
    counts_all: ClassVar[bool]  # whether the client's intervals cover all that it sent
    files: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "iperf3_client": ("iperf3-{}-client.json",),
        "iperf3_server": ("iperf3-{}-server.json",),
    }

    def events(self, flow: Flow, action: str, told: list[Any]) -> Iterator[Key]:
        """The client is held before its start, if it connects in time, and released at its start."""
        if action != "iperf3_client":
            return
        held = [e.get("held") for e in told if (e.get("event"), e.get("flow")) == ("flow_held", flow.name)]
        yield "flow_held", flow.name
        if held != [False]:
            yield "flow_released", flow.name

    def reports(self, run: Run, phase: Phase, flow: Flow) -> Iterator[str]:
        """Contradictions: the reports of both ends must be of one test, and complete."""
        client, server = (
            read_json(run.raw(host, phase.phase, f"iperf3-{flow.name}-{side}.json"))
            for host, side in ((flow.src_host, "client"), (flow.dst_host, "server"))
        )
        if client is None or server is None:
            return  # the check of files reports this
        for side, report in (("client", client), ("server", server)):
            if message := dig(report, "error"):
                yield f"the {side}'s report has an error: {message}"
            if not _interval_sums(report) or None in _interval_sums(report):
                yield f"the {side}'s report has no intervals"
            cookie = dig(report, "start", "cookie")
            if not cookie or cookie != dig(client, "start", "cookie"):
                yield "the reports are not of one test: their cookies differ"
            if dig(report, "start", "test_start", "num_streams") != flow.streams:
                yield f"the {side} had not {flow.streams} streams"
        sent = dig(client, "end", "sum_sent", "bytes")
        counted = [dig(total, "bytes") for total in _interval_sums(client)]
        if not isinstance(sent, int) or None in counted or (self.counts_all and sent != sum(counted)):
            own = None if None in counted else sum(counted)
            yield f"the client sent {sent} bytes, and its intervals have {own}"
        seconds = dig(client, "end", "sum_sent", "seconds")
        if not isinstance(seconds, int | float) or seconds > (flow.duration_ns + LATE_NS) / 1e9:
            yield f"the client sent for {seconds} s"
        received = dig(server, "end", "sum_received", "bytes")
        if not isinstance(received, int) or (isinstance(sent, int) and received > sent):
            yield f"the server received {received} bytes of {sent}"


class Tcp(_Iperf3, Connections):
    """Bulk transfers over TCP."""

    client: ClassVar[str] = "iperf3_client"
    greeting_bytes: ClassVar[int] = 37  # iperf3's cookie
    counts_all: ClassVar[bool] = True

    def events(self, flow: Flow, action: str, told: list[Any]) -> Iterator[Key]:
        """Those of a held client, and of its congestion control."""
        yield from _Iperf3.events(self, flow, action, told)
        yield from Connections.events(self, flow, action, told)

    def checks(self, of: Asked, flow: Flow) -> Iterator[Check]:
        """Checks of the start, the options, and the connections."""
        yield from began(of, flow)
        yield from _sent_throughout(of, flow)
        yield from _options(of, flow)
        yield from Connections.checks(self, of, flow)


class Udp(_Iperf3):
    """Constant bit rates over UDP."""

    counts_all: ClassVar[bool] = False

    def checks(self, of: Asked, flow: Flow) -> Iterator[Check]:
        """Checks of the start, the rate and the options."""
        yield from began(of, flow)
        yield from _sent_throughout(of, flow)
        yield from rate_sent(of, flow, _sent_bps(of.run, flow), NO_REPORT)
        yield from _options(of, flow)

    def covered(self, run: Run, tables: Tables, flow: Flow) -> Iterator[End]:
        """The server reports each second."""
        told = [at for begin, end, _ in self.intervals(run, flow) for at in (begin, end)]
        yield End("receiver", pl.DataFrame({"t_ns": told}, {"t_ns": pl.Int64}), SECOND)

    def lost(self, run: Run, tables: Tables, flow: Flow, last_ns: int) -> Lost | str:
        """Lost datagrams: sent as the client counted, received as the server counted."""
        client = read_json(run.raw(flow.src_host, "measurement", f"iperf3-{flow.name}-client.json"))
        server = read_json(run.raw(flow.dst_host, "measurement", f"iperf3-{flow.name}-server.json"))
        sent = dig(client, "end", "sum_sent", "packets")
        counts = [(dig(total, "packets"), dig(total, "lost_packets")) for total in _interval_sums(server)]
        if not isinstance(sent, int) or not counts or any(None in pair for pair in counts):
            return "its ends have not told it"
        unseen = math.ceil(sent * max(0, flow.end_ns - last_ns) / flow.duration_ns)
        lost = sent - sum(packets - lost for packets, lost in counts)
        return Lost(max(0, lost), 0, unseen + flow.streams, sent)

    def intervals(self, run: Run, flow: Flow) -> list[tuple[int, int, int]]:
        """Intervals of the server's report: begin and end in ns since t0, and bytes received.

        Empty without a report, or if the start of the test is not known. The report's totals are not used:
        they repeat what the client says.
        """
        return [(begin, end, told["bytes"]) for begin, end, told in _received(run, flow, "bytes")]

    def datagrams(self, run: Run, flow: Flow) -> list[tuple[int, int, int, int]]:
        """Datagrams of each interval of the server's report, lost and received, likewise."""
        return [
            (begin, end, told["lost_packets"], told["packets"] - told["lost_packets"])
            for begin, end, told in _received(run, flow, "packets", "lost_packets")
        ]

    def lost_datagrams(self, run: Run, flow: Flow) -> Counted:
        """Lost datagrams of all streams. The receiver cannot know of those lost last; the sender can."""
        server = read_json(run.raw(flow.dst_host, "measurement", f"iperf3-{flow.name}-server.json"))
        sent = dig(_client_report(run, flow), "end", "sum_sent", "packets")
        counts = [(dig(total, "packets"), dig(total, "lost_packets")) for total in _interval_sums(server)]
        if sent is None or not counts or any(None in pair for pair in counts):
            return None, None
        return share(sent - sum(packets - lost for packets, lost in counts), sent)


NO_REPORT = "iperf3 left no report"


def _client_report(run: Run, flow: Flow) -> Any:
    return read_json(run.raw(flow.src_host, "measurement", f"iperf3-{flow.name}-client.json"))


def _interval_sums(report: Any) -> list[Any]:
    """The sum over all streams of each interval in a report; None where the report has none."""
    return [dig(interval, "sum") for interval in dig(report, "intervals") or []]


def _received(run: Run, flow: Flow, *keys: str) -> list[tuple[int, int, dict[str, Any]]]:
    """Intervals of the server's report: begin and end in ns since t0, and the sum of all streams.

    Empty if one lacks any of these keys, or if the start of the test is not known.
    """
    report = read_json(run.raw(flow.dst_host, "measurement", f"iperf3-{flow.name}-server.json"))
    sums, began_ns = _interval_sums(report), _began_ns(run, flow)
    if began_ns is None or not all({"start", "end", *keys} <= (told or {}).keys() for told in sums):
        return []
    return [
        (began_ns + round(told["start"] * 1e9), began_ns + round(told["end"] * 1e9), told) for told in sums
    ]


def _sent_throughout(of: Asked, flow: Flow) -> Iterator[Check]:
    """The client sent from its start to its end."""
    if flow.bytes:
        return
    seconds = dig(_client_report(of.run, flow), "end", "sum_sent", "seconds")
    yield from time_sent(of, flow, None if seconds is None else round(1e9 * seconds), NO_REPORT)


def _options(of: Asked, flow: Flow) -> Iterator[Check]:
    """The sockets had the requested options."""
    start = dig(_client_report(of.run, flow), "start")
    double = None if flow.socket_buffer_bytes is None else 2 * flow.socket_buffer_bytes  # socket(7)
    for name, asked, found in (
        ("MSS", flow.mss_bytes, dig(start, "tcp_mss")),
        ("send buffer", double, dig(start, "sndbuf_actual")),
        ("receive buffer", double, dig(start, "rcvbuf_actual")),
        ("DSCP", flow.dscp, (dig(start, "test_start", "tos") or 0) // 4 if start else None),
    ):
        if asked is not None:
            yield same(name, flow.name, asked, found, what=name, missing=NO_REPORT)


def _sent_bps(run: Run, flow: Flow) -> float | None:
    """Payload rate of the sender, in bit/s over the planned duration."""
    counts = [dig(total, "bytes") for total in _interval_sums(_client_report(run, flow))]
    if not counts or not all(isinstance(count, int) for count in counts):
        return None
    return float(sum(counts) * 8e9 / flow.duration_ns)


def _began_ns(run: Run, flow: Flow) -> int | None:
    """When the server began its test, in ns since t0: half a round trip before its reply reached the client.

    The agent holds a client that waits for this reply, seconds before the first data, and releases it at its
    start.
    """
    t0, path = run.t0_unix_ns("measurement"), run.point.path
    held = run.event("flow_held", flow=flow.name) or {}
    told = held if held.get("held") else run.event("flow_first_data", flow=flow.name) or {}
    if t0 is None or not (held.get("held") or isinstance(told.get("error_ns"), int)):
        return None
    return int(told["unix_ns"]) - t0 - (path.rtt_ns // 2 if path else 0)


FOUND: dict[str, Found] = {"iperf3_tcp": Tcp(), "iperf3_udp": Udp()}
