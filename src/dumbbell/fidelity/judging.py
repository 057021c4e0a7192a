"""What was measured against what was asked: a row for each direction of a cell."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from dumbbell.fidelity.cells import Cell, Effect

Json = Mapping[str, Any]

CONFIDENCE = 0.99


@dataclass(frozen=True)
class Row:
    """One direction of a cell: asked, measured, and what is out of tolerance."""

    cell: str
    direction: str
    rate_bps: int
    rate_tolerance: float
    virtual: bool
    measured_bps: float | None  # None where the bottleneck was not saturated
    rtt_ms: float
    measured_rtt_ms: float
    queue_packets: int
    measured_queue_packets: float | None  # None in real time, and where the queue was not filled
    effect: Effect
    share: float
    measured_share: float
    interval: tuple[int, int]  # of the count, in CONFIDENCE of all cases
    count: int
    packets: int
    unattributed: int
    wrong: tuple[str, ...]
    judged: bool


def judge(cell: Cell, parts: Json) -> Iterator[Row]:
    """Rows of a cell, one for each direction.

    ``parts`` has what the playbook wrote of the ``sender``, ``receiver`` and ``router``: each ``before`` and
    ``after``, pairs of what ``tc -s -j qdisc`` and ``ip -s -j link`` show; ``sent`` and ``received``, lines
    of the generator; the sender's ``ping``; the router's ``devices``.
    """
    measured_rtt_ms = rtt_ms(cell, parts["sender"]["ping"])
    elsewhere = sum(_grown(part, _interface_drops) for part in parts.values())
    for direction, source, target, ifb, egress in (
        ("forward", "sender", "receiver", "ifb_fwd", "right"),
        ("reverse", "receiver", "sender", "ifb_rev", "left"),
    ):
        sent, received = _result(parts[source]["sent"]), _result(parts[target]["received"])
        device = parts["router"]["devices"][egress]["device"]
        queue_drops = _grown(parts["router"], partial(_drops, device=ifb))
        netem_drops = _grown(parts["router"], partial(_drops, device=device))
        lost = sent["sent_packets"] - received["received_packets"]
        other_drops = elsewhere + received["socket_drops"]
        passed = sent["sent_packets"] - queue_drops
        count, share = _effect(cell, max(0, lost - queue_drops - other_drops), received)
        interval = _interval(cell, passed, share)
        bps, queue = None, None
        if cell.effect != "reorder":  # which leaves the bottleneck idle at times
            seconds = (received["last_unix_ns"] - received["first_unix_ns"]) / 1e9
            bps = (passed - 1) * cell.frame_bytes * 8 / seconds if seconds else 0.0  # nothing arrived
            if cell.virtual:
                queue = _queue_packets(cell, received)
        # Queues drop end markers, ARP and the like too, which are not among the datagrams counted.
        unattributed = max(0, lost - queue_drops - netem_drops - other_drops)
        wrong = list(
            _wrong(
                cell,
                measured_rtt_ms=measured_rtt_ms,
                bps=bps,
                queue=queue,
                count=count,
                interval=interval,
            )
        )
        if unattributed:
            wrong.append(f"{unattributed} losses unattributed")
        if not received["end_seen"]:
            wrong.append("the receiver saw no end")
        if sent["skipped_packets"] and any(words.startswith("rate") for words in wrong):
            wrong.append(f"the sender left out {sent['skipped_packets'] / sent['asked_packets']:.1%}")
        yield Row(
            cell=cell.name,
            direction=direction,
            rate_bps=cell.rate_bps,
            rate_tolerance=cell.rate_tolerance,
            virtual=cell.virtual,
            measured_bps=bps,
            rtt_ms=cell.rtt_us / 1000,
            measured_rtt_ms=measured_rtt_ms,
            queue_packets=cell.queue_packets,
            measured_queue_packets=queue,
            effect=cell.effect,
            share=share,
            measured_share=count / max(passed, 1),
            interval=interval,
            count=count,
            packets=passed,
            unattributed=unattributed,
            wrong=tuple(wrong),
            judged=cell.judged,
        )


def _result(lines: Sequence[str]) -> Json:
    """The generator's last line is its result."""
    return dict(json.loads(lines[-1]))


def _queue_packets(cell: Cell, received: Json) -> float:
    """Packets that the longest delay waited for; the shortest delay is that of the empty path."""
    waited_ns = received["delay_max_ns"] - received["delay_min_ns"]
    return float(waited_ns * cell.rate_bps / 8e9 / cell.frame_bytes)


def _effect(cell: Cell, lost_behind_queue: int, received: Json) -> tuple[int, float]:
    """How often the effect was seen, and the share of packets that shall show it."""
    match cell.effect:
        case "duplicate":
            return received["duplicate_packets"], cell.netem["duplicate"]
        case "reorder":
            share = cell.netem["reorder"]
            return received["reordered_packets"], share * (1 - share)  # neither of two early ones overtakes
        case "gemodel":
            p, r = cell.netem["loss_gemodel"]["p"], cell.netem["loss_gemodel"]["r"]
            return lost_behind_queue, p / (p + r)
    return max(0, lost_behind_queue), cell.loss


def _interval(cell: Cell, packets: int, share: float) -> tuple[int, int]:
    if cell.effect == "gemodel":
        p, r = cell.netem["loss_gemodel"]["p"], cell.netem["loss_gemodel"]["r"]
        memory = 1 - p - r  # correlation of the state with the one before
        deviation = math.sqrt(packets * share * (1 - share) * (1 + memory) / (1 - memory))
        reach = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * deviation
        return math.floor(packets * share - reach), math.ceil(packets * share + reach)
    return binomial_interval(packets, share)


def _wrong(
    cell: Cell,
    *,
    measured_rtt_ms: float,
    bps: float | None,
    queue: float | None,
    count: int,
    interval: tuple[int, int],
) -> Iterator[str]:
    if math.isnan(measured_rtt_ms):
        yield "no RTT"
    elif abs(measured_rtt_ms - cell.rtt_us / 1000) > cell.rtt_margin_ms:
        yield f"RTT {measured_rtt_ms:.2f} ms"
    if bps is not None and abs(bps / cell.rate_bps - 1) > cell.rate_tolerance:
        yield f"rate {bps / cell.rate_bps - 1:+.1%}"
    if queue is not None and abs(queue - cell.queue_packets) > cell.queue_margin_packets:
        yield f"queue of {queue:.1f} packets"
    if not interval[0] <= count <= interval[1]:
        yield f"{cell.effect} of {count} packets, not {interval[0]} to {interval[1]}"


def rtt_ms(cell: Cell, ping: str) -> float:
    """The quickest of ping's round trips: what others take longer, hosts have waited for a core.

    Where packets are sent ahead of others, of those that were delayed both ways: one way is half of it. NaN
    without any of these.
    """
    found = [float(ms) for ms in re.findall(r"time=([0-9.]+) ms", ping)]
    least_ms = 0.75 * cell.rtt_us / 1000 if cell.effect == "reorder" else 0
    return min((ms for ms in found if ms >= least_ms), default=math.nan)


def binomial_interval(n: int, p: float, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Least and greatest count of n trials of probability p, outside of which lies 1 - confidence at most."""
    if n <= 0 or p <= 0:
        return 0, 0
    if p >= 1:
        return n, n
    reach = 12 * math.sqrt(n * p * (1 - p)) + 12  # beyond this nothing is left in a double
    counts = range(max(0, math.floor(n * p - reach)), min(n, math.ceil(n * p + reach)) + 1)
    weights = [
        math.exp(
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + k * math.log(p)
            + (n - k) * math.log1p(-p)
        )
        for k in counts
    ]
    tail = (1 - confidence) / 2
    return _after_tail(list(counts), weights, tail), _after_tail(list(counts)[::-1], weights[::-1], tail)


def _after_tail(counts: Sequence[int], weights: Sequence[float], tail: float) -> int:
    total = 0.0
    for count, weight in zip(counts, weights, strict=True):
        total += weight
        if total > tail:
            return count
    return counts[-1]


def _grown(part: Json, read: Callable[[Sequence[Any]], int]) -> int:
    return read(part["after"]) - read(part["before"])


def _drops(state: Sequence[Any], device: str) -> int:
    """Drops of the leaves on a device: a classful qdisc counts those of its leaves as its own too."""
    own = [qdisc for qdisc in state[0] if qdisc["dev"] == device]
    parents = {qdisc["parent"].partition(":")[0] for qdisc in own if "parent" in qdisc}
    return sum(qdisc["drops"] for qdisc in own if qdisc["handle"].rstrip(":") not in parents)


def _interface_drops(state: Sequence[Any]) -> int:
    return sum(
        link["stats64"][side][what]
        for link in state[1]
        for side, what in product(("rx", "tx"), ("dropped", "errors"))
    )


def highest_held_bps(rows: Sequence[Row]) -> int:
    """The highest rate asked that every measurement of it, and of the rates below, held within tolerance."""
    held = 0
    for rate in sorted({row.rate_bps for row in rows}):
        at_rate = [row for row in rows if row.rate_bps == rate and row.measured_bps]
        if any(abs(row.measured_bps / rate - 1) > row.rate_tolerance for row in at_rate if row.measured_bps):
            break
        held = rate
    return held
