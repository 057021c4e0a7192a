"""TCP beside UDP that comes and goes: the goodput of each while the UDP is on, and while it is off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import NamedTuple

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Flow
from dumbbell.studies.retransmissions import UDP, Retransmissions
from dumbbell.studies.source import Missing

CONTROL = "congestion_control"


@dataclass(frozen=True)
class Row:
    """A point with UDP: levels, TCP's congestion control ('' without TCP), and :func:`analysis.on_off`."""

    levels: Mapping[str, str]
    congestion_control: str
    valid: bool
    numbers: Mapping[str, float | None]


class UdpAndTcp(Retransmissions):
    """One point with flows of UDP, TCP or both."""

    @property
    def ends(self) -> tuple[list[Flow], list[Flow]]:
        """The flows of TCP and of UDP, or Missing."""
        flows = self.planned_flows
        udp = [flow for flow in flows if flow.kind in UDP]
        return [flow for flow in flows if flow not in udp], udp

    @property
    def has_both(self) -> bool:
        """Whether the point has both TCP and UDP."""
        try:
            return all(self.ends)
        except Missing:
            return False

    @property
    def label(self) -> str:
        """The levels of the point, in words."""
        try:
            return self.plan.label or "the only one"
        except Missing:
            return "without a plan"

    @cached_property
    def spans(self) -> pl.DataFrame:
        """:func:`analysis.periods` of the UDP, until the last flow ends; or Missing."""
        tcp, udp = self.ends
        if not udp:
            names = ", ".join(flow.name for flow in tcp) or "none"
            raise Missing(f"There is no UDP flow that could come and go. Flows: {names}.")
        return analysis.periods(map(_asked, udp), max(flow.end_ns for flow in [*tcp, *udp]))

    @cached_property
    def beside(self) -> pl.DataFrame:
        """:func:`analysis.beside` of the flows, or Missing."""
        names = [flow.name for flow in self.ends[1]]
        return analysis.beside(self.counters, self.rows("udp"), self.spans, names)

    @property
    def row(self) -> Row | None:
        """The numbers of the point; None without UDP or without samples."""
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

    @property
    def asked_steps(self) -> list[tuple[float, float]]:
        """Steps of the total requested UDP rate: since when (s), and Mbit/s."""
        starts = self.spans.select(pl.col("start_ns") / 1e9, pl.col("asked_bps") / 1e6).rows()
        return [*starts, (max(self.spans["end_ns"]) / 1e9, 0)]

    @cached_property
    def grown(self) -> pl.DataFrame:
        """:func:`analysis.growth_by_period` of netstat's counters, by host and name."""
        snmp = self.table("snmp").rename({"delta": "growth"})
        return analysis.growth_by_period(snmp, self.spans, ["host", "name"], "growth")

    def counted(self, name: str, side: str) -> pl.DataFrame:
        """Rows of ``grown`` for the hosts that send TCP's data, or for those that receive it; or Missing."""
        hosts = {flow.src_host if side == "sender" else flow.dst_host for flow in self.tcp}
        return self.grown.filter(pl.col("host").is_in(hosts), name=name)

    def dropped_by_period(self) -> pl.DataFrame:
        """Drops in each period."""
        key = ["host", "dev", "kind", "handle"]
        drops = self.dropped().with_columns(
            interval_ns=pl.col("t_ns").diff().over(key), growth="dropped_packets"
        )
        return analysis.growth_by_period(drops, self.spans, key, "growth")

    def sums(self, grown: pl.DataFrame) -> list[float]:
        """Growth in each period and in total, summed over hosts and devices."""
        sums = grown.group_by("start_ns").agg(pl.col("growth").sum())
        joined = self.spans.join(sums, on="start_ns", how="left", maintain_order="left")
        values = joined["growth"].fill_null(0)
        return [*values, values.sum()]


class Load(NamedTuple):
    """Points that differ only in their repetition, and the matching points with UDP alone."""

    points: list[Row]
    alone: list[Row]


def loads(rows: Sequence[Row]) -> list[Load]:
    """Points grouped by congestion control (UDP alone first) and by the requested rate of the UDP."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.congestion_control, tuple(row.levels.items())), []).append(row)
    udp_alone = [row for row in rows if not row.congestion_control]
    return [
        Load(own, [row for row in udp_alone if _within(row, own[0])])
        for _, own in sorted(groups.items(), key=_order)
    ]


def median_of(rows: Iterable[Row], name: str) -> float | None:
    """The median of a number over points; None if no point has it."""
    known = [value for row in rows if (value := row.numbers[name]) is not None]
    return median(known) if known else None


def _asked(flow: Flow) -> list[tuple[int, int]]:
    """Steps of a UDP flow's requested rate: since when (ns since t0), and bit/s; 0 from its end on."""
    steps = [(flow.start_ns, flow.rate_bps or 0)]
    steps += [(flow.start_ns + step.at_ns, step.rate_bps) for step in flow.rate_steps or []]
    return [*steps, (flow.end_ns, 0)]


def _order(group: tuple[tuple[str, object], list[Row]]) -> tuple[str, float]:
    """Sort key: congestion control (UDP alone first), then the requested rate of the UDP."""
    (control, _), rows = group
    return control, rows[0].numbers["asked_bps"] or 0


def _within(baseline: Row, row: Row) -> bool:
    """Whether a row has all levels of a baseline."""
    return all(row.levels.get(name) == level for name, level in baseline.levels.items())
