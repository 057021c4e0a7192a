"""The report of files of other tools: what limited each flow, and what the files do not tell."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from markupsafe import Markup

from dumbbell.report import html
from dumbbell.report.pages.run import CARDS, Report
from dumbbell.report.parts import part
from dumbbell.run.content import dig

fill = partial(html.part, "read.html")


class ReadReport(Report):
    """The parts of a run's report that need no plan, and the files with what is missing in them."""

    @part
    def header(self) -> Markup:
        """Title, begin, and the goodput of the first flows."""
        t0_ns = dig(self.manifest, "t0_unix_ns", "measurement")
        return fill(
            "header",
            title=self.manifest.get("title") or self.dir.name,
            began=f"{datetime.fromtimestamp(t0_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"
            if t0_ns
            else "not known",
            cards=list(self._cards_of_flows()),
            more_flows=self._measured_flows().height - CARDS,
            others=self.manifest.get("other_flows", 0),
        )

    @part
    def files(self) -> Markup:
        """Each file: its kind, what it does not tell, and what was left out."""
        return fill("files", files=self.manifest.get("files", []))
