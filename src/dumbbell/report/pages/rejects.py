"""Why TCP sent segments again: lost, rejected because of their timestamps, or come already."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from html import escape
from pathlib import Path

import polars as pl

from dumbbell import analysis
from dumbbell.analysis.paws import MOST_PER_DROP, MOST_UNEXPLAINED, Verdict
from dumbbell.ingest.capture import Capture
from dumbbell.plan import Flow, Way
from dumbbell.plan.actions import CaptureAction
from dumbbell.report import html
from dumbbell.report.pages.run import Report
from dumbbell.report.parts import Missing, part
from dumbbell.run.content import dig
from dumbbell.run.directory import read_json
from dumbbell.units import human

UDP = ("udp", "iperf3_udp")
MOST_STEPS = 12  # rows of a histogram
WORDS: dict[Verdict, str] = {
    "overtaken": "Retransmissions overtook segments that had waited longer, and receivers rejected those for "
    "their older timestamps: something on the way, or the sender's own queue, sends retransmissions first.",
    "not overtaken": "Receivers rejected nothing, or little of what was sent again, because of timestamps.",
    "unexplained": "Receivers rejected segments because of their timestamps, but what was lost, rejected and "
    "sent twice does not add up to what was sent again: it has another cause, or a count is incomplete.",
}


class Rejects(Report):
    """One point, of TCP and perhaps UDP."""

    @property
    def tcp(self) -> list[Flow]:
        """Its flows of TCP, or Missing."""
        flows = [flow for flow in self.plan.phase("measurement").flows if flow.kind not in UDP]
        if not flows:
            raise Missing("There is no TCP flow whose hosts would count.")
        return flows

    @property
    def ways(self) -> set[Way]:
        """Directions in which TCP sends data, or Missing: acknowledgments are never sent again."""
        return {flow.direction for flow in self.tcp}

    def dropped(self) -> pl.DataFrame:
        """:func:`analysis.queue` of what drops packets in the ways of TCP's data, or Missing."""
        if self.plan.path is None:
            raise Missing("this run has no path.")
        kinds = {*(way.queue.kind for _, way in self.plan.path.ways), "netem"}
        rows = self.table("qdisc").filter(pl.col("kind").is_in(kinds))
        parts = []
        for (host,), own in rows.group_by("host"):  # of senders, too
            if of_ways := dig(read_json(self.dir / f"raw/{host}/state.json"), "path", "devices"):
                devices = {device for way in self.ways for device in of_ways[way].values()}
                parts.append(own.filter(pl.col("dev").is_in(devices)))
        if not parts:
            raise Missing("no router's state.json tells which of its devices are of which direction.")
        return analysis.queue(pl.concat(parts))

    @property
    def dropped_udp(self) -> int:
        """Datagrams of them, by their receivers; Missing if one does not tell."""
        flows = [flow for flow in self.plan.phase("measurement").flows if flow.direction in self.ways]
        if silent := [flow.name for flow in flows if flow.kind == "iperf3_udp"]:
            raise Missing(f"Of {', '.join(silent)} it is not known how much the path dropped.")
        of_them = pl.col("flow").is_in([flow.name for flow in flows])
        rows = self.rows("udp").filter(of_them, side="receiver")
        lost = rows.group_by("flow").agg(pl.col("lost_packets").max())
        return int(lost["lost_packets"].sum())

    @cached_property
    def budget(self) -> analysis.Budget:
        """Of the whole measurement, and of all TCP of the hosts at both ends of its flows, or Missing."""
        senders = {flow.src_host for flow in self.tcp}
        receivers = {flow.dst_host for flow in self.tcp}
        snmp = self.table("snmp")

        def grown(name: str, hosts: set[str]) -> int:
            return int(snmp.filter(pl.col("host").is_in(hosts), name=name)["delta"].sum())

        return analysis.Budget(
            retransmits=grown("TcpRetransSegs", senders),
            drops=int(self.dropped()["dropped_packets"].sum()) - self.dropped_udp,
            rejects=grown("TcpExtPAWSEstab", receivers),
            duplicates=grown("TcpExtTCPDSACKRecvSegs", senders),
        )

    @part
    def sent_again(self) -> str:
        """The budget term by term, and what it says."""
        budget = self.budget
        terms = (
            ("sent again", "TcpRetransSegs of the senders", budget.retransmits),
            ("dropped on the way", "drops of queues in data's way, less datagrams", budget.drops),
            ("rejected for their timestamps", "TcpExtPAWSEstab of the receivers", budget.rejects),
            ("came a second time", "TcpExtTCPDSACKRecvSegs of the senders", budget.duplicates),
            ("residual", "the first less the others", budget.residual),
        )
        rows = (html.row([what, counted, human(value), self._share(value)]) for what, counted, value in terms)
        return (
            f"{html.table(('segments', 'counted by', 'number', 'of those sent again'), rows)}"
            f"<p>{WORDS[budget.verdict]}</p>"
            '<p class="note">Of the whole measurement, and of whole hosts. It is the order if any were '
            f"rejected, more than {MOST_PER_DROP} were sent again for each packet dropped, and the residual "
            f"is below {human(MOST_UNEXPLAINED, 'share')}. What was rejected and came twice is in two "
            "terms.</p>"
        )

    def _share(self, value: float) -> str:
        return human(value / self.budget.retransmits, "share") if self.budget.retransmits else "-"

    @part
    def senders_queue(self) -> str:
        """What the qdisc `rapid` of senders did to the order; nothing where there is none."""
        own = self.rows("qdisc").filter(kind="rapid")
        if own.is_empty():
            return ""
        counts = {
            "retrans": "sent again",
            "jumped": "of them ahead of others",
            "ts_regressions": "older timestamp than one before",
            "restamped": "timestamps written anew",
            "maxq": "most that waited",
            "drops": "dropped",
        }
        last = own.group_by("host", "dev").agg(pl.col(*counts).last() - pl.col(*counts).first()).sort("host")
        rows = (
            html.row([escape(f"{row['host']} {row['dev']}"), *(human(row[name]) for name in counts)])
            for row in last.iter_rows(named=True)
        )
        return (
            f"{html.table(('queue of', *counts.values()), rows)}"
            '<p class="note">Packets in the senders\' qdisc <code>rapid</code>, of the whole measurement.</p>'
        )

    def captures(self) -> Iterator[tuple[str, Path]]:
        """Name and file of each capture that there should be."""
        for host, own in self.plan.phase("measurement").hosts.items():
            for action in own.actions:
                if isinstance(action, CaptureAction):
                    file = f"raw/{host}/measurement/capture-{action.name}.pcap"
                    yield f"{host} {action.name}", self.dir / file

    @part
    def overtaken(self) -> str:
        """What captures tell of the order of timestamps, and of what receivers make of it."""
        captures = list(self.captures())
        if not captures:
            raise Missing(
                "Nothing was captured: sampling: {capture: true} asks for the headers of all packets."
            )
        rows, shown = [], ""
        for name, path in captures:
            try:
                capture, paws = Capture.open(path), analysis.Paws()
                for segments in capture.segments():
                    paws.feed(segments)
            except (OSError, ValueError) as error:
                rows.append(html.row([escape(name), escape(str(error)), "", "", "", ""]))
                continue
            counts = (paws.segments, paws.again, paws.backwards, paws.rejected.total())
            rows.append(html.row([escape(name), *map(human, counts), paws.verdict]))
            shown += _exhibit(name, capture, paws)
        counted = ("segments with data", "sent again", "older timestamp than one before", "rejected")
        head = ("captured at", *counted, "verdict")
        return (
            f"{html.table(head, rows)}{shown}"
            '<p class="note">Rejected by a receiver that does with the captured headers what RFC 7323 asks '
            "for: it takes the timestamp of a segment that begins no later than what it waits for, and "
            "rejects data with one that is older by more than a tick. Those count which came again later "
            "with a newer one; before the path they may have been dropped on it. The verdict is the worst "
            "of the connections, of each by the rule of the budget, with all else that was sent again as "
            "dropped; unexplained is also one whose timestamps went back and of which no acknowledgment was "
            "captured.</p>"
        )


def _exhibit(name: str, capture: Capture, paws: analysis.Paws) -> str:
    """The first segment that was rejected behind the one that overtook it, and how old timestamps were."""
    if paws.first is None:
        return ""
    lines = "\n".join(capture.text(at) for at in (paws.first.by_at, paws.first.at))
    steps = [html.row([str(step), human(count)]) for step, count in sorted(paws.steps.items())]
    if len(steps) > MOST_STEPS:
        most = dict(paws.steps.most_common(MOST_STEPS))
        steps = [html.row([str(step), human(count)]) for step, count in sorted(most.items())]
        others = paws.steps.total() - sum(most.values())
        steps.append(html.row([f"{len(paws.steps) - MOST_STEPS} others", human(others)]))
    return (
        f"<h3>{escape(name)}</h3><p>The first that was rejected, below the one that overtook it:</p>"
        f"<pre>{escape(lines)}</pre>"
        f"{html.table(('timestamp older by, in ticks', 'segments rejected'), steps)}"
    )
