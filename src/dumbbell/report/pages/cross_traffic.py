"""TCP beside UDP that comes and goes: goodputs while the UDP is on, and while it is off.

After UNC's page on rapid with on/off UDP cross traffic (2012): UDP alone, throughput over time, and netstat's
counters at the receiver while the UDP was on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from markupsafe import Markup

from dumbbell.report import figures, html
from dumbbell.report.pages.rejects import Rejects
from dumbbell.report.parts import part
from dumbbell.run.content import RunSet
from dumbbell.studies.cross_traffic import CONTROL, UdpAndTcp, loads, median_of
from dumbbell.studies.source import Missing
from dumbbell.units import human

# netstat's counters on the hosts that receive TCP's data, and on those that send it
RECEIVER = ("TcpExtPAWSEstab", "TcpExtTCPOFOQueue", "TcpExtTCPDSACKOldSent", "TcpExtTCPDSACKOfoSent")
SENDER = (
    *("TcpRetransSegs", "TcpExtTCPFastRetrans", "TcpExtTCPSackRecovery", "TcpExtTCPLostRetransmit"),
    *("TcpExtTCPDSACKRecv", "TcpExtTCPTimeouts"),
)

fill = partial(html.part, "cross_traffic.html")


class Beside(Rejects, UdpAndTcp):
    """Parts about one point with flows of UDP, TCP or both."""

    @part
    def by_period(self) -> Markup:
        """Goodput of UDP and TCP in each period."""
        rows = [
            [
                f"{row['start_ns'] / 1e9:g} to {row['end_ns'] / 1e9:g} s",
                human(row["asked_bps"], "bps"),
                human(row["udp_bps"], "bps"),
                human(_lost(row), "share"),
                human(row["tcp_bps"], "bps"),
            ]
            for row in self.beside.iter_rows(named=True)
        ]
        return fill("by_period", rows=rows)

    @part
    def goodput_beside(self) -> Markup:
        """Goodput of all flows and the requested rate of UDP, in one figure."""
        width = self.bin_ns()
        rates, asked = self.goodputs(width), {"asked of UDP": self.asked_steps}
        drawn = figures.goodput(rates, self.planned_flows, self.plan.path, self.x_max_s, asked)
        return fill("goodput_beside", drawn=drawn, width_ns=width)

    @part
    def netstat(self) -> Markup:
        """Growth of netstat's counters in each period, on the hosts at both ends of TCP, and drops."""
        rows = [
            [f"{name}, {side}", *map(_count, self.sums(self.counted(name, side)))]
            for side, names in (("receiver", RECEIVER), ("sender", SENDER))
            for name in names
        ]
        try:
            rows.append(["dropped by the router", *map(_count, self.sums(self.dropped_by_period()))])
        except Missing as missing:
            rows.append([f"dropped by the router: {missing}"])
        lost = self.beside["lost_packets"]
        rows.append(["of them UDP, by its receiver", *map(_count, [*lost, lost.sum()])])
        head = [
            f"{row['start_ns'] / 1e9:g} to {row['end_ns'] / 1e9:g} s, {'on' if row['asked_bps'] else 'off'}"
            for row in self.spans.iter_rows(named=True)
        ]
        return fill("netstat", head=["counter", *head, "all"], rows=rows)


class CrossTraffic:
    """Parts about a run directory of one or many points; figures show one point, ``shown``.

    ``point`` names its directory below ``points``; by default it is the first with both TCP and UDP.
    """

    def __init__(self, run_dir: Path | str, point: str = "") -> None:
        self.points = [Beside(path) for path in RunSet.open(run_dir).dirs]
        named = [one for one in self.points if point and one.dir.name == point]
        both = [one for one in self.points if one.has_both]
        self.shown = (named or both or self.points)[0]
        self._absent = "" if named else point

    @part
    def which(self) -> Markup:
        """The shown point and the names of the others; empty for a run of one point."""
        if self._absent:
            known = ", ".join(one.dir.name for one in self.points)
            raise Missing(
                f"This run has no point {self._absent}, so {self.shown.dir.name} is shown of {known}."
            )
        if len(self.points) == 1:
            return Markup()
        return fill("which", points=self.points, shown=self.shown)

    @part
    def points_table(self) -> Markup:
        """Medians of all points: UDP requested, alone and beside TCP, and TCP while it is on and off."""
        found = [row for one in self.points if (row := one.row)]
        rows = found if len(self.points) == 1 else [row for row in found if row.valid]
        if not rows:
            udp = any(one.ends[1] for one in self.points if one.label != "without a plan")
            why = "of their UDP none was sampled in a valid point" if udp else "none has UDP"
            raise Missing(f"There is nothing to tell of UDP and of TCP beside it: {why}.")
        # TCP's has its own column.
        names = [name for name in dict.fromkeys(n for row in rows for n in row.levels) if name != CONTROL]
        body = []
        for load in loads(rows):
            first = load.points[0]
            beside = human(median_of(load.points, "udp_bps"), "bps") if first.congestion_control else "-"
            body.append(
                [
                    *(first.levels.get(name, "-") for name in names),
                    first.congestion_control or "none",
                    human(median_of(load.points, "asked_bps"), "bps"),
                    human(median_of(load.alone, "udp_bps"), "bps"),
                    beside,
                    human(median_of(load.points, "loss"), "share"),
                    human(median_of(load.points, "tcp_on_bps"), "bps"),
                    human(median_of(load.points, "tcp_off_bps"), "bps"),
                    str(len(load.points)),
                ]
            )
        head = ("TCP", "UDP asked", "UDP alone", "UDP beside", "UDP lost", "TCP, UDP on", "TCP, UDP off", "n")
        left_out = len(self.points) - len(rows)
        return fill("points", head=[*names, *head], rows=body, left_out=left_out, points=len(self.points))


def _lost(row: Mapping[str, float | None]) -> float | None:
    lost, received = row["lost_packets"] or 0, row["received_packets"] or 0
    return lost / (lost + received) if lost + received else None


def _count(value: float | None) -> str:
    return human(None if value is None else round(value))
