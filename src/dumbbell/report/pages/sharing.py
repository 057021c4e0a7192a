"""How the flows of a run shared their bottleneck: numbers of each, and when they began to share it fairly."""

from __future__ import annotations

from functools import partial

import polars as pl
from markupsafe import Markup

from dumbbell.metrics.values import values
from dumbbell.plan.windows import ways
from dumbbell.report import html
from dumbbell.report.pages.rejects import Rejects
from dumbbell.report.parts import part
from dumbbell.studies.sharing import FAIR, STAYS_NS, fair_after_s
from dumbbell.studies.source import Missing
from dumbbell.units import human

fill = partial(html.part, "sharing.html")


class Sharing(Rejects):
    """Parts about all flows of a run together."""

    @part
    def flows(self) -> Markup:
        """A row for each flow, and one for all."""
        try:
            found = values(self.dir)
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            raise Missing(f"There are no numbers of this run: {error}.") from None
        numbers = {
            (r["metric"], r["subject"]): human(r["value"], r["unit"]) for r in found.iter_rows(named=True)
        }
        names = ("goodput", "retransmits", "time_in_recovery", "rtt")
        rows = [
            [
                flow.name,
                flow.congestion_control or ("atou" if flow.kind == "atou" else "-"),
                f"{flow.src_host} → {flow.dst_host}",
                *(numbers.get((name, flow.name), "-") for name in names),
            ]
            for flow in self.planned_flows
        ]
        together = [
            f"{what} of {subject} {value}"
            for what, metric in (("Jain's index", "jain_index"), ("utilisation", "utilisation"))
            for (name, subject), value in numbers.items()
            if name == metric
        ]
        head = ("flow", "congestion control", "pair", "goodput", "sent again", "in recovery", "median RTT")
        return fill("flows", head=head, rows=rows, together=", ".join(together) or "nothing is known")

    @part
    def convergence(self) -> Markup:
        """When the flows of each direction began to share fairly."""
        found = fair_after_s(self)
        several = len(ways(self.planned_flows)) > 1
        return fill("convergence", after_s=found, several=several, fair=FAIR, stays_s=STAYS_NS / 1e9)
