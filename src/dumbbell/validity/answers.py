"""What programs leave of themselves: replies of pings, and reports of both ends of a flow, agree within."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from dumbbell.plan import Flow, Phase, PingAction
from dumbbell.plan.actions import TcpPingAction
from dumbbell.plan.path import PlannedPath
from dumbbell.run.content import Run, dig, interval_sums
from dumbbell.run.directory import read_json
from dumbbell.run.of_path import most_lost
from dumbbell.validity import documents
from dumbbell.validity.check import Check, faultless

REPLY = re.compile(
    r"^\[(\d+\.\d+)\] \d+ bytes from (\S+): icmp_seq=(\d+) ttl=(\d+) time=([0-9.]+) ms( \(DUP!\))?$"
)
COUNTS = re.compile(
    r"^(\d+) packets transmitted, (\d+) received(?:, \+(\d+) duplicates)?, [0-9.]+% packet loss, time \d+ms$"
)
RTTS = re.compile(r"^rtt min/avg/max/mdev = ([0-9.]+)/([0-9.]+)/([0-9.]+)/[0-9.]+ ms(?:, pipe \d+)?$")
SEQUENCES = 2**16  # of echo requests; then they begin again
FEW_PACKETS = 3  # of which a rate is none
ROUNDING_MS = 0.5  # of a mean over times of three digits, whatever their size
BPS_ROUNDING = 0.01  # between a rate and the bytes and time that it is made of
FOREIGN = 1e-3  # the most of what a flow's server got that may be of others: it moves no number of the flow
LATE_NS = 60_000_000_000  # after its end a flow's last datagram has come


def checks(run: Run) -> Iterator[Check]:
    """Of each ping, and of each flow whose ends report."""
    path = run.point.path
    for phase in run.point.phases:
        for host, part in phase.hosts.items():
            for action in part.actions:
                if isinstance(action, PingAction):
                    file = run.raw(host, phase.phase, f"ping-{action.name}.txt")
                    t0 = run.t0_unix_ns(phase.phase)
                    subject = f"{action.name} {phase.phase}"
                    yield faultless("replies", subject, _ping(file, action, t0, phase, run.point.path))
                if isinstance(action, TcpPingAction):
                    told = read_json(run.raw(host, phase.phase, f"tcp-ping-{action.name}.json"))
                    yield faultless("replies", f"{action.name} {phase.phase}", _tcp_ping(told, action, path))
        for flow in phase.flows:
            if flow.kind == "udp":
                yield faultless("reports", f"{flow.name} {phase.phase}", _udp(run, phase, flow))
            if flow.kind == "http":
                yield faultless("reports", f"{flow.name} {phase.phase}", _http(run, phase, flow))
            if flow.kind in ("iperf3_tcp", "iperf3_udp"):
                yield faultless("reports", f"{flow.name} {phase.phase}", _iperf3(run, phase, flow))


# --- pings ----------------------------------------------------------------------------------------


def _ping(
    file: Path, ping: PingAction, t0: int | None, phase: Phase, path: PlannedPath | None
) -> Iterator[str]:
    """Ping's replies are those that it counted, in order, of one path."""
    try:
        lines = [line for line in file.read_text(errors="replace").splitlines() if line]
    except OSError:
        return  # that it is missing is said of files
    replies = [match for line in lines if (match := REPLY.match(line))]
    counts = next((match for line in lines if (match := COUNTS.match(line))), None)
    rtts = next((match for line in lines if (match := RTTS.match(line))), None)
    head = [line for line in lines if line.startswith(f"PING {ping.dst} ")]
    known = {*head, *(match.string for match in replies), f"--- {ping.dst} ping statistics ---"}
    known |= {match.string for match in (counts, rtts) if match}
    for line in lines:
        if line not in known:
            yield f"ping said {line[:80]!r}"
    if counts is None or (rtts is None and replies) or len(head) != 1:
        yield "ping did not come to its end"
        return
    first = [match for match in replies if not match[6]]
    yield from _counted(
        ping, first, len(replies) - len(first), [int(count or 0) for count in counts.groups()]
    )
    if {match[2] for match in replies} - {ping.dst}:
        yield f"others than {ping.dst} replied"
    if len({match[4] for match in replies}) > 1:
        yield "replies came over paths of different lengths (ttl)"
    if t0 is not None:
        times = [float(match[1]) - t0 / 1e9 for match in replies]
        latest = (phase.duration_ns + LATE_NS) / 1e9
        if any(not ping.at_ns / 1e9 - 1 <= at <= latest for at in times):
            yield "replies came outside of the phase"
        if path is not None and not path.jitters and times != sorted(times):
            yield "the times of replies are not in order"
    if rtts is not None and first:
        yield from _rtts([float(match[5]) for match in first], [float(value) for value in rtts.groups()])


def _counted(
    ping: PingAction, first: list[re.Match[str]], duplicates: int, counts: list[int]
) -> Iterator[str]:
    sent, received, again = counts
    if sent != ping.count:
        yield f"ping sent {sent} requests, asked {ping.count}"
    if received != len(first) or again != duplicates:
        yield f"ping counted {received} replies, and {len(first)} are there"
    numbers = [int(match[3]) for match in first]
    if len(set(numbers)) != len(numbers) and ping.count < SEQUENCES:
        yield "ping has two first replies to one request"
    if any(not 0 <= number <= min(ping.count, SEQUENCES) for number in numbers):
        yield "ping has replies to requests that it did not send"


def _rtts(found: list[float], told: list[float]) -> Iterator[str]:
    """Of the replies, and as ping tells of all."""
    own = (min(found), sum(found) / len(found), max(found))
    for what, value, of_all in zip(("least", "mean", "largest"), own, told, strict=True):
        if abs(value - of_all) > ROUNDING_MS:
            yield f"the {what} RTT of the replies is {value:.3f} ms, and ping told {of_all} ms"


def _tcp_ping(told: Any, ping: TcpPingAction, path: PlannedPath | None) -> Iterator[str]:
    if documents.faults(documents.TcpPing, told, ""):
        return  # which is said of files
    sent, came = told["sent"], len(told["rtts_ns"])
    if sent != ping.count:
        yield f"it asked for {sent} connections, of {ping.count}"
    ways = [] if path is None else [path.forward, path.reverse]
    if not 0 <= sent - came <= most_lost(ways, sent):
        yield f"{came} of {sent} connections were made"


# --- reports --------------------------------------------------------------------------------------


def _udp(run: Run, phase: Phase, flow: Flow) -> Iterator[str]:
    """Counts of both ends of a flow of datagrams."""
    sent, got = (
        read_json(run.raw(host, phase.phase, f"udp-{flow.name}-{side}.json"))
        for host, side in ((flow.src_host, "sender"), (flow.dst_host, "receiver"))
    )
    if documents.faults(documents.UdpSender, sent, "") or documents.faults(documents.UdpReceiver, got, ""):
        return  # which is said of files
    few = (
        run.point.validity.arrival_tolerance
    )  # of a measurement, which loses less, the loss budget judges more
    payload, t0 = flow.payload_bytes or 0, run.t0_unix_ns(phase.phase)
    duplicates = run.point.path is not None and any(
        state.duplicate for _, state in run.point.path.way(flow.direction).states
    )
    for fine, fault in (
        (
            sent["asked_packets"] == sent["sent_packets"] + sent["skipped_packets"],
            "sent and skipped are not all",
        ),
        (sent["sent_bytes"] == payload * sent["sent_packets"], "bytes sent are not those of its datagrams"),
        (
            got["received_bytes"] == payload * got["received_packets"],
            "bytes received are not those of its datagrams",
        ),
        (
            not got["end_seen"] or sent["sent_packets"] == got["received_packets"] + got["lost_packets"],
            "received and lost are not all that was sent",
        ),
        (
            _like(sent["sent_bps"], 8e9 * sent["sent_bytes"] / flow.duration_ns),
            "the rate sent is not that of its bytes",
        ),
        (_like(sent["asked_bps"], flow.mean_rate_bps or 0), "the sender was not asked the plan's rate"),
        (
            got["received_packets"] < FEW_PACKETS
            or _like(
                got["received_bps"],
                8e9 * got["received_bytes"] / _span(got),
                FEW_PACKETS / got["received_packets"],
            ),
            "the rate received is not that of its bytes",
        ),
        (not sent["too_large"], "the path takes smaller datagrams only"),
        (duplicates or not got["duplicate_packets"], "datagrams came twice, which nobody asked"),
        (got["end_seen"], "no end marker came: what was lost at the end is not known"),
        (got["socket_drops"] <= few * got["received_packets"], "its socket was full for many datagrams"),
        (
            sent["dropped_packets"] <= few * sent["sent_packets"],
            "its sender's own queue refused many datagrams",
        ),
        (not got["stale_packets"], "datagrams came too late to be counted"),
        (
            got["foreign_packets"] <= FOREIGN * got["received_packets"],
            f"{got['foreign_packets']} datagrams came that were not its own, of {got['received_packets']}",
        ),
        (got["kernel_stamps"], "the kernel did not stamp arrivals"),
        (
            got["delay_packets"] <= got["received_packets"] + got["duplicate_packets"],
            "more delays than datagrams",
        ),
        (_ascending(got), "its delays are not in order"),
        (t0 is None or _within(flow, sent, got, t0), "its first and last datagram are not in its time"),
    ):
        if not fine:
            yield fault


def _like(found: float, asked: float, within: float = 0.0) -> bool:
    return abs(found - asked) <= max(BPS_ROUNDING, within) * asked + 1


def _span(told: dict[str, Any]) -> int:
    return max(1, int(told["last_unix_ns"]) - int(told["first_unix_ns"]))


def _ascending(got: dict[str, Any]) -> bool:
    """As far as their percentiles are exact, which are of classes of a few per cent."""
    names = ("min", "p50", "p90", "p99", "p999", "max")
    delays = [got[f"delay_{name}_ns"] for name in names]
    slack = max(abs(delay) for delay in delays) // 20
    steady = all(low <= high + slack for low, high in pairwise(delays))
    return steady and delays[0] <= got["delay_mean_ns"] <= delays[-1]


def _within(flow: Flow, sent: dict[str, Any], got: dict[str, Any], t0: int) -> bool:
    times = [told[f"{which}_unix_ns"] - t0 for told in (sent, got) for which in ("first", "last")]
    ordered = all(told["first_unix_ns"] <= told["last_unix_ns"] for told in (sent, got))
    latest = flow.end_ns + LATE_NS
    return (
        ordered
        and all(flow.start_ns - LATE_NS // 60 <= at <= latest for at in times)
        and all(
            told["unix_ns"] >= told["last_unix_ns"] - LATE_NS // 60 and told["unix_ns"] - t0 <= latest
            for told in (sent, got)
        )
    )


def _http(run: Run, phase: Phase, flow: Flow) -> Iterator[str]:
    """Counts of both ends of a flow of fetches."""
    client = read_json(run.raw(flow.client_host, phase.phase, f"http-{flow.name}-receiver.json"))
    server = read_json(run.raw(flow.server_host, phase.phase, f"http-{flow.name}-sender.json"))
    if documents.faults(documents.HttpReceiver, client, "") or documents.faults(
        documents.HttpSender, server, ""
    ):
        return  # which is said of files
    for fine, fault in (
        (client["asked"] == (flow.fetches or 0), "the client was not asked the plan's number of fetches"),
        (
            client["begun"] == sum(client[key] for key in ("done", "failed", "cut")),
            "done, failed and cut are not all",
        ),
        (not client["failed"], f"{client['failed']} fetches failed: {client.get('failure')}"),
        (server["served"] >= client["done"], "the server served fewer than were done"),
        (server["served"] <= client["begun"], "the server served more than were begun"),
        (
            server["connections"] <= client["connections"],
            "the server had more connections than the client made",
        ),
        (  # the flow's end cuts some before they ask for anything
            server["foreign"] <= client["cut"] + FOREIGN * server["served"],
            f"{server['foreign']} connections came that were not its client's, or asked for something else",
        ),
        (client["connections"] <= max(1, client["begun"]), "the client made more connections than fetches"),
        (bool(client["connections"]) or not client["done"], "the client made no connection"),
        (bool(server["connections"]) or not client["done"], "the server had no connection"),
    ):
        if not fine:
            yield fault


def _iperf3(run: Run, phase: Phase, flow: Flow) -> Iterator[str]:
    """The two reports are of one test, and each is whole."""
    client, server = (
        read_json(run.raw(host, phase.phase, f"iperf3-{flow.name}-{side}.json"))
        for host, side in ((flow.src_host, "client"), (flow.dst_host, "server"))
    )
    if client is None or server is None:
        return  # which is said of files
    for side, report in (("client", client), ("server", server)):
        if message := dig(report, "error"):
            yield f"the {side}'s report has an error: {message}"
        if not interval_sums(report) or None in interval_sums(report):
            yield f"the {side}'s report has no intervals"
        cookie = dig(report, "start", "cookie")
        if not cookie or cookie != dig(client, "start", "cookie"):
            yield "the reports are not of one test: their cookies differ"
        if dig(report, "start", "test_start", "num_streams") != flow.streams:
            yield f"the {side} had not {flow.streams} streams"
    sent = dig(client, "end", "sum_sent", "bytes")
    counted = [dig(total, "bytes") for total in interval_sums(client)]
    if not isinstance(sent, int) or None in counted or (flow.kind == "iperf3_tcp" and sent != sum(counted)):
        own = None if None in counted else sum(counted)
        yield f"the client sent {sent} bytes, and its intervals have {own}"
    seconds = dig(client, "end", "sum_sent", "seconds")
    if not isinstance(seconds, int | float) or seconds > (flow.duration_ns + LATE_NS) / 1e9:
        yield f"the client sent for {seconds} s"
    received = dig(server, "end", "sum_received", "bytes")
    if not isinstance(received, int) or (isinstance(sent, int) and received > sent):
        yield f"the server received {received} bytes of {sent}"
