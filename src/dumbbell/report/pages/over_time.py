"""A run over time: goodput, window, round-trip time, queue, shares."""

from __future__ import annotations

from functools import partial

import polars as pl
from markupsafe import Markup

from dumbbell import analysis
from dumbbell.plan import Flow, windows
from dumbbell.report import figures, html
from dumbbell.report.parts import part
from dumbbell.studies.source import Missing, Source

fill = partial(html.part, "over_time.html")


class OverTime(Source):
    """Parts that show a run over time."""

    @part
    def goodput(self) -> Markup:
        """Goodput over time by flow."""
        width = self.bin_ns()
        drawn = figures.goodput(self.goodputs(width), self.planned_flows, self.plan.path, self.x_max_s)
        return fill("goodput", drawn=drawn, width_ns=width)

    @part
    def cwnd(self) -> Markup:
        """Congestion window over time by flow."""
        path, flows = self.plan.path, self.planned_flows
        samples = self._sampled("snd_cwnd", "cwnd (segments)", scale=1)
        drawn = figures.cwnd(samples, flows, path, self.x_max_s)
        return fill("cwnd", drawn=drawn, thinned=_thinned(samples))

    @part
    def srtt(self) -> Markup:
        """Smoothed round-trip time over time by flow."""
        path, flows = self.plan.path, self.planned_flows
        samples = self._sampled("srtt_us", "smoothed RTT (ms)", scale=1000)
        drawn = figures.srtt(samples, flows, path, self.x_max_s)
        return fill("srtt", drawn=drawn, thinned=_thinned(samples))

    def _sampled(self, column: str, what: str, *, scale: float) -> pl.DataFrame:
        """A column of senders' samples divided by a scale, ``[flow, stream, t_ns, y]``, or Missing."""
        there = (pl.col("side") == "sender") & pl.col(column).is_not_null()
        samples = self.rows("tcp_info", "flow", "stream", "t_ns", column, where=there)
        if samples.is_empty():
            raise Missing(f"No sender's socket was sampled, so there is no {what} to show.")
        return samples.select("flow", "stream", "t_ns", y=pl.col(column) / scale).sort("t_ns")

    @property
    def _rapid_flows(self) -> list[Flow]:
        return [flow for flow in self.planned_flows if flow.congestion_control == "rapid"]

    @part
    def available(self) -> Markup:
        """AB_est and R_avg of flows of Rapid, under a heading; empty without such flows."""
        if not self._rapid_flows:
            return Markup()
        try:
            traced = self.rows("rapid")
        except Missing:
            traced = None
        found = analysis.available(self.rows("tcp_info", *analysis.AVAILABLE_FROM), traced)
        drawn = figures.available(found, self._rapid_flows, self.plan.path, self.x_max_s)
        if drawn is None:
            raise Missing("No sender of Rapid told what it had found to be available.")
        sources = found["source"].unique().sort(descending=True).to_list()
        return fill("available", drawn=drawn, sources=sources)

    @part
    def pstreams(self) -> Markup:
        """P-streams per second of flows of Rapid; empty without such flows."""
        if not self._rapid_flows:
            return Markup()
        try:
            traced = self.table("rapid")
        except Missing:
            raise Missing("P-streams are counted where sampling.trace is asked for.") from None
        width = max(self.bin_ns(), 1_000_000_000)
        end_ns = self.plan.phase("measurement").duration_ns
        counted = analysis.pstreams(traced, analysis.steps(0, end_ns, width))
        drawn = figures.pstreams(counted, self._rapid_flows, self.x_max_s)
        return fill("pstreams", drawn=drawn, width_ns=width)

    @part
    def queue(self) -> Markup:
        """The queue of the router's bottlenecks, and their drops."""
        path = self.plan.path
        rows = self.table("qdisc")
        if path is not None:
            rows = rows.filter(pl.col("kind").is_in([path.forward.queue.kind, path.reverse.queue.kind]))
        if rows.is_empty():
            raise Missing("No qdisc of the kind that the path asks for was sampled on a router.")
        return fill("queue", drawn=figures.queue(analysis.queue(rows), path, self.x_max_s))

    @part
    def fairness(self) -> Markup:
        """Jain's index over time and overall, in each direction with several flows."""
        width = max(self.bin_ns(), 1_000_000_000)
        rates = self.goodputs(width)
        overall = {c["subject"]: c["measured"] for c in self.checks("jain_index")}
        shown = []
        for flows in windows.ways(self.planned_flows).values():
            rows = analysis.fairness(rates, {flow.name: flow.life_ns for flow in flows})
            subject = windows.in_words(flows, self.planned_flows)
            if not rows.is_empty():
                shown.append((subject, figures.fairness(rows, overall.get(subject), self.x_max_s)))
        if not shown:
            raise Missing(
                "At no time do two sampled flows run at once, so there is no share to be fair about."
            )
        return fill("fairness", shown=shown, width_ns=width)


def _thinned(samples: pl.DataFrame) -> bool:
    most = samples.group_by("flow", "stream").len()["len"].max()
    return isinstance(most, int) and most > figures.MAX_POINTS
