"""Why TCP retransmitted: segments were lost, rejected because of their timestamps, or had arrived already."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from markupsafe import Markup

from dumbbell import analysis
from dumbbell.analysis.paws import MOST_PER_DROP, MOST_UNEXPLAINED
from dumbbell.ingest.capture import Capture
from dumbbell.report import html
from dumbbell.report.pages.run import Report
from dumbbell.report.parts import part
from dumbbell.studies.retransmissions import QDISC, Retransmissions
from dumbbell.studies.source import Missing
from dumbbell.units import human

MOST_STEPS = 12  # most rows of a histogram

fill = partial(html.part, "rejects.html")


class Exhibit(NamedTuple):
    """From a capture: a rejected segment and the one that overtook it, and the ages of timestamps."""

    name: str
    lines: str
    steps: list[list[str]]


class Rejects(Report, Retransmissions):
    """Parts about one point."""

    @part
    def sent_again(self) -> Markup:
        """The terms of the retransmission budget, and the conclusion."""
        budget = self.budget
        terms = (
            ("sent again", "TcpRetransSegs of the senders", budget.retransmits),
            ("dropped on the way", "drops of queues in data's way, less datagrams", budget.drops),
            ("rejected for their timestamps", "TcpExtPAWSEstab of the receivers", budget.rejects),
            ("came a second time", "TcpExtTCPDSACKRecvSegs of the senders", budget.duplicates),
            ("residual", "the first less the others", budget.residual),
        )
        rows = [[what, counted, human(value), self._share(value)] for what, counted, value in terms]
        return fill(
            "sent_again",
            rows=rows,
            verdict=budget.verdict,
            most_per_drop=MOST_PER_DROP,
            most_unexplained=MOST_UNEXPLAINED,
        )

    def _share(self, value: float) -> str:
        return human(value / self.budget.retransmits, "share") if self.budget.retransmits else "-"

    @part
    def senders_queue(self) -> Markup:
        """How senders' qdisc `rapid` changed the order of segments; empty without it."""
        counted = self.senders_queues
        if counted.is_empty():
            return Markup()
        rows = [
            [f"{row['host']} {row['dev']}", *(human(row[name]) for name in QDISC)]
            for row in counted.iter_rows(named=True)
        ]
        return fill("senders_queue", head=["queue of", *QDISC.values()], rows=rows)

    @part
    def overtaken(self) -> Markup:
        """The order of timestamps in captures, and what receivers made of it."""
        captures = list(self.captures())
        if not captures:
            raise Missing(
                "Nothing was captured: sampling: {capture: true} asks for the headers of all packets."
            )
        rows, shown = [], []
        for name, path in captures:
            try:
                capture, paws = Capture.open(path), analysis.Paws()
                for segments in capture.segments():
                    paws.feed(segments)
            except (OSError, ValueError) as error:
                rows.append([name, str(error), "", "", "", ""])
                continue
            counts = (paws.segments, paws.again, paws.backwards, paws.rejected.total())
            rows.append([name, *map(human, counts), paws.verdict])
            if paws.first:
                lines = "\n".join(capture.text(at) for at in (paws.first.by_at, paws.first.at))
                shown.append(Exhibit(name, lines, _steps(paws)))
        counted = ("segments with data", "sent again", "older timestamp than one before", "rejected")
        return fill("overtaken", head=("captured at", *counted, "verdict"), rows=rows, exhibits=shown)


def _steps(paws: analysis.Paws) -> list[list[str]]:
    """Numbers of rejected segments by how much older their timestamps were: the most frequent ones."""
    most = dict(paws.steps.most_common(MOST_STEPS))
    rows = [[str(step), human(count)] for step, count in sorted(most.items())]
    if len(paws.steps) > MOST_STEPS:
        others = paws.steps.total() - sum(most.values())
        rows.append([f"{len(paws.steps) - MOST_STEPS} others", human(others)])
    return rows
