"""How faithfully a testbed emulates a path: what to measure, and what was measured against what was asked.

``playbooks/fidelity.yml`` measures. ``python -m dumbbell.fidelity cells`` prints what it shall measure,
``again DIR`` what of it deserves a second look, and ``judge DIR`` prints the table, and fails where a
tolerance is not met.

In every cell both directions carry more UDP than the bottleneck lets through. Datagrams are numbered, so
that those sent, received, lost, duplicated and overtaken are known exactly; counters of queues, netems and
interfaces say where the lost ones went.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

from dumbbell import units

Json = Mapping[str, Any]

RATES_BPS = (10**6, 10**7, 10**8, 5 * 10**8)
VIRTUAL_RATES_BPS = (10**6, 10**7, 10**8, 10**9)
VIRTUAL_ONCE_BPS = 10**10
RTTS_US = (0, 10_000, 100_000)
LOSSES = (0.0, 0.001, 0.01, 0.05)
LADDER_BPS = (
    150 * 10**6,
    200 * 10**6,
    250 * 10**6,
    300 * 10**6,
    400 * 10**6,
)  # for the highest rate that is held

HEADERS_BYTES = 14 + 20 + 8  # Ethernet, IPv4, UDP: what the bottleneck counts besides the payload
LEAST_PAYLOAD_BYTES, MOST_PAYLOAD_BYTES = 32, 1472

RTT_TOLERANCE, RTT_MARGIN_MS = 0.01, 0.5
RATE_TOLERANCE, FAST_BPS, FAST_TOLERANCE = 0.02, 500 * 10**6, 0.05
VIRTUAL_RTT_MARGIN_MS, VIRTUAL_RATE_TOLERANCE = 0.1, 0.005
ALWAYS_JUDGED_BPS = 100 * 10**6  # what is faster and not held is beyond the testbed, and said so
OVERLOAD, QUEUE_S = 1.15, 0.1  # a sender that is late for less leaves no gap in a bottleneck
LEAST_S = 5.0  # of a measurement, beside which the last packets' wait for a core is short
# Of fast cells where nothing waits for a core: the burst that a bottleneck begins with weighs little in them.
VIRTUAL_LEAST_S = {10**9: 1.0}
CONFIDENCE = 0.99
TABLE_MARK = "<!-- written by make fidelity -->"
WRITTEN = (Path("docs/fidelity.md"), Path("bench/fidelity.json"))
VIRTUAL_WRITTEN = (Path("docs/fidelity-virtual.md"), Path("bench/fidelity_virtual.json"))
AGAIN = 4  # times the packets of a first measurement

Effect = Literal["loss", "duplicate", "reorder", "gemodel"]


@dataclass(frozen=True)
class Cell:
    """One setting of the path, the same in both directions, and the traffic that measures it."""

    name: str
    rate_bps: int
    rtt_us: int
    loss: float
    effect: Effect
    netem: dict[str, Any]  # parameters of tc_path beyond rate, delay and queue
    queue_packets: int
    payload_bytes: int
    offered_bps: int  # payload
    duration_s: float
    packets: int  # that pass the bottleneck
    judged: bool = True  # the ladder only looks for the highest rate
    virtual: bool = False  # measured in virtual time, whose tolerances are narrower

    @property
    def rtt_margin_ms(self) -> float:
        """How far the idle RTT may be from what is asked."""
        return VIRTUAL_RTT_MARGIN_MS if self.virtual else RTT_TOLERANCE * self.rtt_us / 1000 + RTT_MARGIN_MS

    @property
    def rate_tolerance(self) -> float:
        """How far the rate may be from what is asked, as a share of it."""
        if self.virtual:
            return VIRTUAL_RATE_TOLERANCE
        return FAST_TOLERANCE if self.rate_bps >= FAST_BPS else RATE_TOLERANCE


def cells(*, virtual: bool = False) -> list[Cell]:
    """The matrix, then one cell for each other thing that netem does.

    Then the ladder, or in virtual time one rate that no small machine carries.
    """
    others = [
        _cell(10**7, 10_000, 0.0, "duplicate", {"duplicate": 0.05}),
        _cell(10**7, 10_000, 0.0, "gemodel", {"loss_gemodel": {"p": 0.01, "r": 0.25}}),
        _reorder_cell(0.1),
    ]
    if virtual:
        once = _cell(VIRTUAL_ONCE_BPS, 10_000, 0.001, "loss", {"loss": 0.001}, least_s=1.0)
        found = [*_matrix(VIRTUAL_RATES_BPS, VIRTUAL_LEAST_S), *others, once]
        return [replace(cell, virtual=True) for cell in found]
    ladder = [_cell(rate, 0, 0.0, "loss", {}, judged=False) for rate in LADDER_BPS]
    return [*_matrix(RATES_BPS, {}), *others, *ladder]


def _matrix(rates_bps: Sequence[int], least_s: Mapping[int, float]) -> list[Cell]:
    return [
        _cell(rate, rtt, loss, "loss", {"loss": loss}, least_s=least_s.get(rate, LEAST_S))
        for rate, rtt, loss in product(rates_bps, RTTS_US, LOSSES)
    ]


def _cell(
    rate_bps: int,
    rtt_us: int,
    loss: float,
    effect: Effect,
    netem: dict[str, Any],
    *,
    judged: bool = True,
    least_s: float = LEAST_S,
) -> Cell:
    """A saturated bottleneck: frames as small as 5 000 packets/s need, and packets enough for the loss."""
    payload = rate_bps // (8 * 5000) - HEADERS_BYTES
    payload = min(max(payload, LEAST_PAYLOAD_BYTES), MOST_PAYLOAD_BYTES)
    packets_per_s = rate_bps / 8 / (payload + HEADERS_BYTES)
    rarest = min([share for share in (loss, netem.get("duplicate", 0)) if share], default=1.0)
    duration_s = math.ceil(max(least_s, 10 / rarest / packets_per_s))
    what = effect if effect != "loss" else f"{100 * loss:g}%"
    return Cell(
        name=f"{units.render_rate(rate_bps)}-{rtt_us // 1000}ms-{what}",
        rate_bps=rate_bps,
        rtt_us=rtt_us,
        loss=loss,
        effect=effect,
        netem=netem,
        queue_packets=max(10, math.ceil(packets_per_s * QUEUE_S)),
        payload_bytes=payload,
        offered_bps=int(OVERLOAD * packets_per_s * payload * 8),
        duration_s=duration_s,
        packets=int(duration_s * packets_per_s),
        judged=judged,
    )


def _reorder_cell(share: float) -> Cell:
    """A packet each 20 ms and 30 ms of delay: one that is sent at once overtakes just the one before it."""
    spacing_ms, payload, duration_s = 20, 200, 40.0
    return Cell(
        name="10mbit-60ms-reorder",
        rate_bps=10**7,
        rtt_us=60_000,
        loss=0.0,
        effect="reorder",
        netem={"reorder": share},
        queue_packets=100,
        payload_bytes=payload,
        offered_bps=payload * 8 * 1000 // spacing_ms,
        duration_s=duration_s,
        packets=int(duration_s * 1000 / spacing_ms),
    )


# --- judging --------------------------------------------------------------------------------------


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
        bps = None
        if cell.effect != "reorder":  # which leaves the bottleneck idle at times
            seconds = (received["last_unix_ns"] - received["first_unix_ns"]) / 1e9
            bps = (passed - 1) * (cell.payload_bytes + HEADERS_BYTES) * 8 / seconds
        # Queues drop end markers, ARP and the like too, which are not among the datagrams counted.
        unattributed = max(0, lost - queue_drops - netem_drops - other_drops)
        wrong = list(_wrong(cell, measured_rtt_ms, bps, count, interval))
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
    cell: Cell, measured_rtt_ms: float, bps: float | None, count: int, interval: tuple[int, int]
) -> Iterator[str]:
    if math.isnan(measured_rtt_ms):
        yield "no RTT"
    elif abs(measured_rtt_ms - cell.rtt_us / 1000) > cell.rtt_margin_ms:
        yield f"RTT {measured_rtt_ms:.2f} ms"
    if bps is not None and abs(bps / cell.rate_bps - 1) > cell.rate_tolerance:
        yield f"rate {bps / cell.rate_bps - 1:+.1%}"
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


def markdown(rows: Sequence[Row]) -> str:
    """The table asked / measured."""
    lines = [
        "| cell | direction | rate | RTT | asked | measured | packets | count, 99 % | unattributed | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        rate = f"{row.measured_bps / 1e6:.2f} Mbit/s" if row.measured_bps else "-"
        what = "" if row.effect == "loss" else f" {row.effect}"
        verdict = "; ".join(row.wrong) or "ok"
        lines.append(
            f"| {row.cell} | {row.direction} | {rate} | {row.measured_rtt_ms:.2f} ms "
            f"| {100 * row.share:.3g} %{what} | {100 * row.measured_share:.3g} % | {row.packets} "
            f"| {row.count}, {row.interval[0]}-{row.interval[1]} | {row.unattributed} "
            f"| {verdict if row.judged else f'looked at: {verdict}'} |"
        )
    return "\n".join(lines)


def judge_all(folder: Path) -> list[Row]:
    """Rows of all cells in the order of the matrix; a first measurement that was repeated is not judged."""
    rows: list[Row] = []
    for attempts in _measured(folder):
        for cell, parts in attempts:
            rows += judge(replace(cell, judged=cell.judged and cell == attempts[-1][0]), parts)
    return rows


def _measured(folder: Path) -> list[list[tuple[Cell, dict[str, Json]]]]:
    """Of each cell its measurements, the shortest first: how it was set, and what the playbook wrote."""
    found: dict[str, dict[float, dict[str, Json]]] = {}
    for path in folder.rglob("*.*.json"):
        part = json.loads(path.read_text())
        cell = part["cell"]
        parts = found.setdefault(cell["name"], {}).setdefault(cell["duration_s"], {})
        parts[path.suffixes[-2].removeprefix(".")] = part
    order = [cell.name for cell in (*cells(), *cells(virtual=True))]
    return [
        [(Cell(**parts["router"]["cell"]), parts) for _, parts in sorted(found[name].items())]
        for name in sorted(found, key=order.index)
    ]


def again(folder: Path) -> list[Cell]:
    """Cells out of tolerance, four times as long.

    One count in a hundred is outside its interval by chance, and the machine may have had other work. Losses
    that nothing accounts for have no such excuse.
    """
    unlikely = {row.cell for row in judge_all(folder) if row.judged and row.wrong and not row.unattributed}
    return [
        replace(cell, duration_s=AGAIN * cell.duration_s, packets=AGAIN * cell.packets)
        for (cell, _), *_ in _measured(folder)
        if cell.name in unlikely
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``python -m dumbbell.fidelity``."""
    parser = argparse.ArgumentParser(prog="python -m dumbbell.fidelity")
    commands = parser.add_subparsers(dest="command", required=True)
    listed = commands.add_parser("cells", help="what is to be measured, as JSON")
    listed.add_argument("--only", help="regular expression of their names", default="")
    listed.add_argument("--virtual", action="store_true", help="in virtual time")
    commands.add_parser("again", help="what deserves a second look, as JSON").add_argument(
        "folder", type=Path
    )
    judged = commands.add_parser("judge", help="print and write the table; fail where it is out of tolerance")
    judged.add_argument("folder", type=Path)
    judged.add_argument("--write", action="store_true", help="into docs/ and bench/")
    options = parser.parse_args(arguments)
    if options.command == "judge":
        return _report(judge_all(options.folder), write=options.write)
    if options.command == "again":
        found = again(options.folder)
    else:
        found = [cell for cell in cells(virtual=options.virtual) if re.search(options.only, cell.name)]
    print(json.dumps([asdict(cell) for cell in found]))
    return 0


def _report(rows: list[Row], *, write: bool) -> int:
    held = highest_held_bps(rows)
    judged = [row for row in rows if row.judged]
    beyond = [row for row in judged if row.rate_bps > max(held, ALWAYS_JUDGED_BPS)]
    wrong = [row for row in judged if row.wrong and row not in beyond]
    summary = [
        f"Highest rate held: {held / 1e6:g} Mbit/s.",
        f"Up to it, {len(judged) - len(beyond) - len(wrong)} of {len(judged) - len(beyond)} measurements are "
        "within tolerance.",
    ]
    if beyond:
        summary.append(f"{len(beyond)} measurements ask for more than that and prove nothing.")
    text = f"{' '.join(summary)}\n\n{markdown(rows)}\n"
    print(text)
    if write:
        virtual = any(row.virtual for row in rows)
        document, target = VIRTUAL_WRITTEN if virtual else WRITTEN
        introduction, mark, _ = document.read_text().partition(TABLE_MARK)
        document.write_text(f"{introduction}{mark}\n\n{text}")
        body = {"highest_held_bps": held, "rows": [asdict(row) for row in rows]}
        target.write_text(json.dumps(body, indent=1) + "\n")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
