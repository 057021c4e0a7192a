"""TCP beside UDP that comes and goes: what each got while the UDP was on and while it was off.

After UNC's page on rapid with on/off UDP cross traffic (2012): UDP alone, throughput over time, and netstat's
counters at the receiver while the UDP was on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from statistics import median

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Flow
from dumbbell.report import figures, html
from dumbbell.report.pages.rejects import UDP, Rejects
from dumbbell.report.parts import Missing, part, show
from dumbbell.run.content import point_dirs
from dumbbell.units import human

CONTROL = "congestion_control"
# What netstat tells: of the hosts that receive TCP's data, and of those that send it.
RECEIVER = ("TcpExtPAWSEstab", "TcpExtTCPOFOQueue", "TcpExtTCPDSACKOldSent", "TcpExtTCPDSACKOfoSent")
SENDER = (
    *("TcpRetransSegs", "TcpExtTCPFastRetrans", "TcpExtTCPSackRecovery", "TcpExtTCPLostRetransmit"),
    *("TcpExtTCPDSACKRecv", "TcpExtTCPTimeouts"),
)


@dataclass(frozen=True)
class Row:
    """A point with UDP: what varies, what TCP was there (none is ''), and :func:`analysis.on_off` of it."""

    levels: Mapping[str, str]
    congestion_control: str
    valid: bool
    numbers: Mapping[str, float | None]


class Beside(Rejects):
    """One point, of UDP and the TCP beside it; either may be alone."""

    @property
    def ends(self) -> tuple[list[Flow], list[Flow]]:
        """Its flows of TCP and of UDP, or Missing."""
        flows = self.plan.phase("measurement").flows
        udp = [flow for flow in flows if flow.kind in UDP]
        return [flow for flow in flows if flow not in udp], udp

    @property
    def has_both(self) -> bool:
        """Whether TCP and UDP are in it."""
        try:
            return all(self.ends)
        except Missing:
            return False

    @property
    def label(self) -> str:
        """What varies, in words."""
        try:
            return self.plan.label or "the only one"
        except Missing:
            return "without a plan"

    @cached_property
    def spans(self) -> pl.DataFrame:
        """:func:`analysis.periods` of its UDP until its last flow ends, or Missing."""
        tcp, udp = self.ends
        if not udp:
            names = ", ".join(flow.name for flow in tcp) or "none"
            raise Missing(f"There is no UDP flow that could come and go. Flows: {names}.")
        return analysis.periods(map(_asked, udp), max(flow.end_ns for flow in [*tcp, *udp]))

    @cached_property
    def beside(self) -> pl.DataFrame:
        """:func:`analysis.beside` of its flows, or Missing."""
        names = [flow.name for flow in self.ends[1]]
        return analysis.beside(self.counters, self.rows("udp"), self.spans, names)

    @property
    def row(self) -> Row | None:
        """Its numbers; None without UDP, or without samples."""
        try:
            numbers = analysis.on_off(self.beside)
            controls = dict.fromkeys(flow.congestion_control or "TCP" for flow in self.ends[0])
        except Missing:
            return None
        if numbers["udp_bps"] is None:
            return None
        return Row(
            self.plan.levels, ", ".join(controls), self.verdict.get("state") in analysis.VALID, numbers
        )

    @part
    def by_period(self) -> str:
        """What UDP and TCP got in each period."""
        rows = [
            html.row(
                [
                    f"{row['start_ns'] / 1e9:g} to {row['end_ns'] / 1e9:g} s",
                    human(row["asked_bps"], "bps"),
                    human(row["udp_bps"], "bps"),
                    human(_lost(row), "share"),
                    human(row["tcp_bps"], "bps"),
                ]
            )
            for row in self.beside.iter_rows(named=True)
        ]
        return (
            f"{html.table(('period', 'UDP asked', 'UDP', 'UDP lost', 'TCP'), rows)}"
            '<p class="note">Payload that arrived, sums over flows. A datagram counts as lost when a later '
            "one arrives. - is what samples do not cover, or a flow that is not there.</p>"
        )

    @part
    def goodput_beside(self) -> str:
        """Goodput of all flows, and the rate that is asked of UDP, in one figure."""
        phase, width = self.plan.phase("measurement"), self.bin_ns()
        rates = analysis.goodput(self.counters, analysis.steps(0, phase.duration_ns, width))
        starts = self.spans.select(pl.col("start_ns") / 1e9, pl.col("asked_bps") / 1e6).rows()
        asked = {"asked of UDP": [*starts, (max(self.spans["end_ns"]) / 1e9, 0)]}
        return show(
            figures.goodput(rates, phase.flows, self.plan.path, self.x_max_s, asked),
            f"Payload delivered in each {human(width, 'ns')}: of TCP by <code>bytes_received</code> "
            "(TCP_INFO), of UDP by its receiver. What UDP lacks of what is asked of it was lost on the way.",
        )

    @cached_property
    def grown(self) -> pl.DataFrame:
        """:func:`analysis.growth_by_period` of netstat's counters, by host and name."""
        snmp = self.table("snmp").rename({"delta": "growth"})
        return analysis.growth_by_period(snmp, self.spans, ["host", "name"], "growth")

    def counted(self, name: str, side: str) -> pl.DataFrame:
        """Rows of ``grown`` of the hosts that send TCP's data, or receive it, or Missing."""
        hosts = {flow.src_host if side == "sender" else flow.dst_host for flow in self.tcp}
        return self.grown.filter(pl.col("host").is_in(hosts), name=name)

    @part
    def netstat(self) -> str:
        """Counters of netstat in each period, of the hosts at both ends of TCP's flows, and drops."""
        rows = [
            [f"{name}, {side}", *self._cells(self.counted(name, side))]
            for side, names in (("receiver", RECEIVER), ("sender", SENDER))
            for name in names
        ]
        try:
            rows.append(["dropped by the router", *self._cells(self._dropped())])
        except Missing as missing:
            rows.append([f"dropped by the router: {missing}"])
        lost = self.beside["lost_packets"]
        rows.append(["of them UDP, by its receiver", *map(_count, [*lost, lost.sum()])])
        head = [
            f"{row['start_ns'] / 1e9:g} to {row['end_ns'] / 1e9:g} s, {'on' if row['asked_bps'] else 'off'}"
            for row in self.spans.iter_rows(named=True)
        ]
        return (
            f"{html.table(['counter', *head, 'all'], (html.row(map(escape, cells)) for cells in rows))}"
            '<p class="note">Growth of counters of the whole host, which are read each second: what grew '
            "across the edge of a period is shared out by time. On and off is UDP. PAWSEstab counts segments "
            "that the receiver rejected because of their timestamps: a queue that sends retransmissions "
            "first causes it, and then most of what is sent again was never dropped.</p>"
        )

    def _dropped(self) -> pl.DataFrame:
        """Growth of drops by period."""
        key = ["host", "dev", "kind", "handle"]
        drops = self.dropped().with_columns(
            interval_ns=pl.col("t_ns").diff().over(key), growth="dropped_packets"
        )
        return analysis.growth_by_period(drops, self.spans, key, "growth")

    def _cells(self, grown: pl.DataFrame) -> list[str]:
        """Growth in each period, and in all, as text."""
        sums = grown.group_by("start_ns").agg(pl.col("growth").sum())
        joined = self.spans.join(sums, on="start_ns", how="left", maintain_order="left")
        values = joined["growth"].fill_null(0)
        return [_count(value) for value in [*values, values.sum()]]


class CrossTraffic:
    """A run directory of one point, or of many, of which one is ``shown`` in figures.

    ``point`` names its directory below ``points``; by default it is the first with both TCP and UDP.
    """

    def __init__(self, run_dir: Path | str, point: str = "") -> None:
        self.points = [Beside(path) for path in point_dirs(run_dir)]
        named = [one for one in self.points if point and one.dir.name == point]
        both = [one for one in self.points if one.has_both]
        self.shown = (named or both or self.points)[0]
        self._absent = "" if named else point

    @part
    def which(self) -> str:
        """Which point is shown, and which others there are; nothing of a run of one point."""
        if self._absent:
            known = ", ".join(one.dir.name for one in self.points)
            raise Missing(
                f"This run has no point {self._absent}, so {self.shown.dir.name} is shown of {known}."
            )
        if len(self.points) == 1:
            return ""
        names = "; ".join(f"{one.dir.name} {one.label}" for one in self.points)
        return (
            f"<p>Of {len(self.points)} points this is {escape(self.shown.dir.name)}, "
            f"{escape(self.shown.label)}. The parameter <code>point</code> names another.</p>"
            f"<details><summary>All points</summary><p>{escape(names)}</p></details>"
        )

    @part
    def points_table(self) -> str:
        """Medians of all points: UDP asked, alone and beside TCP, and TCP while it is on and off."""
        found = [row for one in self.points if (row := one.row)]
        rows = found if len(self.points) == 1 else [row for row in found if row.valid]
        if not rows:
            udp = any(one.ends[1] for one in self.points if one.label != "without a plan")
            why = "of their UDP none was sampled in a valid point" if udp else "none has UDP"
            raise Missing(f"There is nothing to tell of UDP and of TCP beside it: {why}.")
        groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Row]] = {}
        for row in rows:
            groups.setdefault((row.congestion_control, tuple(row.levels.items())), []).append(row)
        # That of TCP has a column of its own.
        names = [name for name in dict.fromkeys(n for row in rows for n in row.levels) if name != CONTROL]
        body = []
        for (control, _), own in sorted(groups.items(), key=_order):
            alone = [row for row in rows if not row.congestion_control and _within(row, own[0])]
            cells = [
                *(own[0].levels.get(name, "-") for name in names),
                control or "none",
                _median(own, "asked_bps"),
                _median(alone, "udp_bps"),
                _median(own, "udp_bps") if control else "-",
                _median(own, "loss", "share"),
                _median(own, "tcp_on_bps"),
                _median(own, "tcp_off_bps"),
                str(len(own)),
            ]
            body.append(html.row(map(escape, cells)))
        head = ("TCP", "UDP asked", "UDP alone", "UDP beside", "UDP lost", "TCP, UDP on", "TCP, UDP off", "n")
        left_out = len(self.points) - len(rows)
        note = f" {left_out} of {len(self.points)} points are left out: not valid, or without UDP." * (
            left_out > 0
        )
        return (
            f"{html.table([*map(escape, names), *head], body)}"
            '<p class="note">Medians of n repetitions. Of UDP while it is on, alone and beside TCP: payload '
            "that arrived, and the share of datagrams that did not. Of TCP while UDP is on, and while it is "
            f"off.{note}</p>"
        )


def _asked(flow: Flow) -> list[tuple[int, int]]:
    """Since when a UDP flow is asked for which rate, in ns since t0 and bit/s; 0 from its end on."""
    steps = [(flow.start_ns, flow.rate_bps or 0)]
    steps += [(flow.start_ns + step.at_ns, step.rate_bps) for step in flow.rate_steps or []]
    return [*steps, (flow.end_ns, 0)]


def _order(group: tuple[tuple[str, object], list[Row]]) -> tuple[str, float]:
    """By congestion control, UDP alone first, and by the rate that is asked of UDP."""
    (control, _), rows = group
    return control, rows[0].numbers["asked_bps"] or 0


def _within(baseline: Row, row: Row) -> bool:
    """Whether all that varies in a baseline is the same in a row."""
    return all(row.levels.get(name) == level for name, level in baseline.levels.items())


def _median(rows: Iterable[Row], name: str, unit: str = "bps") -> str:
    known = [value for row in rows if (value := row.numbers[name]) is not None]
    return human(median(known), unit) if known else "-"


def _lost(row: Mapping[str, float | None]) -> float | None:
    lost, received = row["lost_packets"] or 0, row["received_packets"] or 0
    return lost / (lost + received) if lost + received else None


def _count(value: float | None) -> str:
    return human(None if value is None else round(value))
