"""How the flows of a run shared their bottleneck: the numbers of each, and when they came to share it."""

from __future__ import annotations

from html import escape

import polars as pl

from dumbbell import analysis
from dumbbell.metrics.values import values
from dumbbell.plan.windows import ways
from dumbbell.report import html
from dumbbell.report.pages.rejects import Rejects
from dumbbell.report.parts import Missing, part
from dumbbell.units import human

BIN_NS = 10**9
FAIR = 0.9  # Jain's index from which on flows count as sharing
STAYS_NS = 5 * 10**9  # for which they have to go on


class Sharing(Rejects):
    """Parts about all flows of a run together."""

    @part
    def flows(self) -> str:
        """A row for each flow, and one for all."""
        try:
            found = values(self.dir)
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            raise Missing(f"There are no numbers of this run: {error}.") from None
        numbers = {
            (r["metric"], r["subject"]): human(r["value"], r["unit"]) for r in found.iter_rows(named=True)
        }
        flows = self.plan.phase("measurement").flows
        names = ("goodput", "retransmits", "time_in_recovery", "rtt")
        rows = [
            html.row(
                [
                    escape(flow.name),
                    escape(flow.congestion_control or ("atou" if flow.kind == "atou" else "-")),
                    f"{escape(flow.src_host)} → {escape(flow.dst_host)}",
                    *(numbers.get((name, flow.name), "-") for name in names),
                ]
            )
            for flow in flows
        ]
        together = [
            f"{what} of {subject} {value}"
            for what, metric in (("Jain's index", "jain_index"), ("utilisation", "utilisation"))
            for (name, subject), value in numbers.items()
            if name == metric
        ]
        head = ("flow", "congestion control", "pair", "goodput", "sent again", "in recovery", "median RTT")
        return (
            f'{html.table(head, rows)}<p class="note">Of each flow from its start to its end, after the '
            f"warm-up. While all run: {', '.join(together) or 'nothing is known'}. "
            "In recovery is the share of samples in Recovery or Loss.</p>"
        )

    @part
    def convergence(self) -> str:
        """Since when the flows of each direction shared fairly."""
        phase = self.plan.phase("measurement")
        rates = analysis.goodput(self.counters, analysis.steps(0, phase.duration_ns, BIN_NS))
        directions, said = ways(phase.flows), []
        for way, flows in directions.items():
            spans = {flow.name: flow.life_ns for flow in flows}
            shares = analysis.fairness(rates, spans).filter(pl.col("flows") == len(flows))
            if shares.is_empty():
                continue
            last_start_s = max(start for start, _ in spans.values()) / 1e9
            at_ns = analysis.convergence_ns(shares, least=FAIR, for_ns=STAYS_NS)
            when = (
                "never" if at_ns is None else f"{at_ns / 1e9 - last_start_s:.1f} s after the last flow began"
            )
            which = "" if len(directions) == 1 else f" {way}"
            said.append(f"The flows{which} began to share fairly <b>{when}</b>")
        if not said:
            raise Missing("At no time do all flows run at once.")
        return (
            f"<p>{'. '.join(said)}: Jain's index of the goodputs of each second "
            f"was at least {FAIR:g} for {STAYS_NS / 1e9:g} s on end.</p>"
        )
