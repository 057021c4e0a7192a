"""tcp and iperf3_udp: flows of iperf3."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import polars as pl

from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, fact, same
from dumbbell.facts.columns import WEB100, Columns, names, rows_of
from dumbbell.kinds.found.base import Counted, End, Found, Key, Lost, Tables, share
from dumbbell.kinds.found.shared import (
    began,
    congestion_control,
    connections,
    of_measurement,
    pacing,
    path_met,
    rate_sent,
    retransmits,
    sampled,
    tcp_columns,
)
from dumbbell.plan import Flow, Phase
from dumbbell.plan.actions import PhaseHost
from dumbbell.run.content import IN_MEASUREMENT, Run, dig
from dumbbell.run.directory import read_json
from dumbbell.units import human

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


class Tcp(_Iperf3):
    """Bulk transfers over TCP."""

    greeting_bytes: ClassVar[int] = 37  # iperf3's cookie
    counts_all: ClassVar[bool] = True

    def events(self, flow: Flow, action: str, told: list[Any]) -> Iterator[Key]:
        """The agent also reads the congestion control of the connections."""
        yield from super().events(flow, action, told)
        if action == "iperf3_client":
            yield "flow_congestion_control", flow.name

    def checks(self, of: Asked, flow: Flow) -> Iterator[Check]:
        """Checks of the start, the options, the path, and both ends of each stream."""
        yield from began(of, flow)
        yield from _sent_throughout(of, flow)
        yield from _options(of, flow)
        yield from path_met(of, flow, of_measurement(of.tables["tcp_info"]))
        yield from congestion_control(flow, self.congestion_controls(of.run, of.tables, flow))
        for side in ("sender", "receiver"):
            rows = of_measurement(of.tables["tcp_info"]).filter(flow=flow.name, side=side)
            yield from connections(of, flow, side, rows)
            if not flow.bytes:
                yield from sampled(of, flow, side, rows, flow.end_ns)
        yield from pacing(of, flow)

    def columns(self, flow: Flow, side: str, part: PhaseHost) -> Iterator[Columns]:
        """The columns of the connections' samples, web100 variables and traces."""
        if flow.name not in part.sample.tcp:
            return
        match = {"flow": flow.name, "side": side}
        yield from tcp_columns(flow, side, to_last_row=True)
        yield rows_of("web100", (), sometimes=WEB100, match=match, steady=False)
        if part.sample.trace:
            own = names("data_bytes snd_nxt snd_una snd_cwnd snd_ssthresh snd_wnd srtt_us rcv_wnd")
            yield rows_of("tcp_probe", own, match=match, steady=False)

    def lost(self, run: Run, tables: Tables, flow: Flow, last_ns: int) -> Lost | str:
        """Lost segments, from what the kernels of both ends counted until their sockets ended."""
        rows = tables["tcp_info"].filter(phase="measurement", flow=flow.name)
        needed = ("data_segs_out", "data_segs_in", "bytes_sent", "bytes_retrans", "bytes_acked", "snd_mss")
        if not {*needed, "final"} <= {*rows.columns}:
            return "its ends were not sampled to their last row"
        ends = rows.filter(pl.col("final").fill_null(value=False))
        sent, got = ends.filter(side="sender"), ends.filter(side="receiver")
        if sent.height != flow.streams or got.height != flow.streams:
            seen = f"{sent.height} ends of its sender and {got.height} of its receiver"
            return f"{seen} were seen, of {flow.streams}"
        before = (
            rows.filter((pl.col("t_ns") <= last_ns) & (pl.col("side") == "sender"))
            .sort("t_ns")
            .group_by("stream")
            .agg(pl.col("data_segs_out").last())
        )
        left = sent.select((pl.col("bytes_sent") - pl.col("bytes_retrans") - pl.col("bytes_acked")).clip(0)
                           // pl.col("snd_mss") + 1).sum().item()  # fmt: skip
        out, came = int(sent["data_segs_out"].sum()), int(got["data_segs_in"].sum())
        return Lost(
            max(0, out - came - left), left, out - int(before["data_segs_out"].sum()) + flow.streams, out
        )

    def retransmitted(self, tables: Tables, flow: Flow) -> Counted:
        """Retransmissions of all streams."""
        return retransmits(tables["tcp_info"].filter(IN_MEASUREMENT).filter(flow=flow.name, side="sender"))


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
        report = read_json(run.raw(flow.dst_host, "measurement", f"iperf3-{flow.name}-server.json"))
        sums = _interval_sums(report)
        began_ns = _began_ns(run, flow)
        if began_ns is None or not all({"start", "end", "bytes"} <= (told or {}).keys() for told in sums):
            return []
        return [
            (began_ns + round(told["start"] * 1e9), began_ns + round(told["end"] * 1e9), told["bytes"])
            for told in sums
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


def _sent_throughout(of: Asked, flow: Flow) -> Iterator[Check]:
    """The client sent from its start to its end."""
    if flow.bytes:
        return
    seconds = dig(_client_report(of.run, flow), "end", "sum_sent", "seconds")
    sent_ns = None if seconds is None else round(1e9 * seconds)
    reason = ""
    if sent_ns is None:
        reason = f"time for which iperf3 sent not known: {NO_REPORT}"
    elif sent_ns < flow.duration_ns - of.point.validity.start_error_ns:
        least = human(flow.duration_ns, "ns")
        reason = f"time for which iperf3 sent is {human(sent_ns, 'ns')}, asked at least {least}"
    yield fact("time sent", flow.name, flow.duration_ns, sent_ns, unit="ns", ok=not reason, reason=reason)


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
