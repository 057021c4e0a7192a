"""Outputs of programs are consistent: replies of pings, and reports of both ends of a flow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dumbbell.facts import documents
from dumbbell.facts.check import Check, faultless
from dumbbell.kinds.found import FOUND
from dumbbell.kinds.found.shared import LATE_NS
from dumbbell.plan import Phase, PingAction
from dumbbell.plan.actions import TcpPingAction
from dumbbell.plan.path import PlannedPath
from dumbbell.run.content import Run
from dumbbell.run.of_path import most_lost
from dumbbell.run.record import read_json

REPLY = re.compile(
    r"^\[(\d+\.\d+)\] \d+ bytes from (\S+): icmp_seq=(\d+) ttl=(\d+) time=([0-9.]+) ms( \(DUP!\))?$"
)
COUNTS = re.compile(
    r"^(\d+) packets transmitted, (\d+) received(?:, \+(\d+) duplicates)?, [0-9.]+% packet loss, time \d+ms$"
)
RTTS = re.compile(r"^rtt min/avg/max/mdev = ([0-9.]+)/([0-9.]+)/([0-9.]+)/[0-9.]+ ms(?:, pipe \d+)?$")
SEQUENCES = 2**16  # sequence numbers of echo requests; they wrap to 0
ROUNDING_MS = 0.5  # of a mean of times that ping prints with three digits, whatever their size


def checks(run: Run) -> Iterator[Check]:
    """A check of each ping, and of each flow whose ends report."""
    path = run.point.path
    for phase in run.point.phases:
        for host, part in phase.hosts.items():
            for action in part.actions:
                if isinstance(action, PingAction):
                    file = run.raw(host, phase.phase, f"ping-{action.name}.txt")
                    t0 = run.t0_unix_ns(phase.phase)
                    subject = f"{action.name} {phase.phase}"
                    yield faultless("replies", subject, ping_faults(file, action, t0, phase, run.point.path))
                if isinstance(action, TcpPingAction):
                    told = read_json(run.raw(host, phase.phase, f"tcp-ping-{action.name}.json"))
                    yield faultless("replies", f"{action.name} {phase.phase}", _tcp_ping(told, action, path))
        for flow in phase.flows:
            if (faults := FOUND[flow.kind].reports(run, phase, flow)) is not None:
                yield faultless("reports", f"{flow.name} {phase.phase}", faults)


# --- pings ----------------------------------------------------------------------------------------


def ping_faults(
    file: Path, ping: PingAction, t0: int | None, phase: Phase, path: PlannedPath | None
) -> Iterator[str]:
    """Contradictions in the output of a ping: replies and totals agree, in order, with RTTs of one path."""
    try:
        lines = [line for line in file.read_text(errors="replace").splitlines() if line]
    except OSError:
        return  # the check of files reports this
    replies = [match for line in lines if (match := REPLY.match(line))]
    counts = next((match for line in lines if (match := COUNTS.match(line))), None)
    rtts = next((match for line in lines if (match := RTTS.match(line))), None)
    head = [line for line in lines if re.match(rf"PING {re.escape(ping.dst)} ?\(", line)]  # no space: IPv6
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
    """Contradictions between the RTTs of the replies and ping's summary."""
    own = (min(found), sum(found) / len(found), max(found))
    for what, value, of_all in zip(("least", "mean", "largest"), own, told, strict=True):
        if abs(value - of_all) > ROUNDING_MS:
            yield f"the {what} RTT of the replies is {value:.3f} ms, and ping told {of_all} ms"


def _tcp_ping(told: Any, ping: TcpPingAction, path: PlannedPath | None) -> Iterator[str]:
    if documents.faults(documents.TcpPing, told, ""):
        return  # the check of files reports this
    sent, came = told["sent"], len(told["rtts_ns"])
    if sent != ping.count:
        yield f"it asked for {sent} connections, of {ping.count}"
    ways = [] if path is None else [path.forward, path.reverse]
    if not 0 <= sent - came <= most_lost(ways, sent):
        yield f"{came} of {sent} connections were made"
