"""How the flows of a run shared their bottleneck: the numbers of each, and when they came to share it."""

from __future__ import annotations

from html import escape

import polars as pl

from dumbbell import analysis
from dumbbell.report import Missing, html, part
from dumbbell.report.rejects import Rejects
from dumbbell.store.values import values
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
            f"{what} {numbers.get((name, 'all flows'), 'not known')}"
            for what, name in (("Jain's index", "jain_index"), ("utilisation", "utilisation"))
        ]
        head = ("flow", "congestion control", "pair", "goodput", "sent again", "in recovery", "median RTT")
        return (
            f'{html.table(head, rows)}<p class="note">Of each flow from its start to its end. While all run: '
            f"{', '.join(together)}. In recovery is the share of samples in Recovery or Loss.</p>"
        )

    @part
    def convergence(self) -> str:
        """Since when the flows shared fairly."""
        flows = self.plan.phase("measurement").flows
        spans = {flow.name: (flow.start_ns, flow.end_ns) for flow in flows}
        end_ns = self.plan.phase("measurement").duration_ns
        rates = analysis.goodput(self.counters, analysis.steps(0, end_ns, BIN_NS))
        shares = analysis.fairness(rates, spans).filter(pl.col("flows") == len(flows))
        if shares.is_empty():
            raise Missing("At no time do all flows run at once.")
        last_start_s = max(start for start, _ in spans.values()) / 1e9
        at_ns = analysis.convergence_ns(shares, least=FAIR, for_ns=STAYS_NS)
        said = "never" if at_ns is None else f"{at_ns / 1e9 - last_start_s:.1f} s after the last flow began"
        return (
            f"<p>The flows began to share fairly <b>{said}</b>: Jain's index of the goodputs of each second "
            f"was at least {FAIR:g} for {STAYS_NS / 1e9:g} s on end.</p>"
        )
