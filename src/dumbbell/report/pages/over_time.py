"""A run over time: goodput, window, round-trip time, queue, shares."""

from __future__ import annotations

from functools import partial

from markupsafe import Markup

from dumbbell.report import html
from dumbbell.report.parts import part
from dumbbell.report.plots import of_run
from dumbbell.studies.source import Source

fill = partial(html.part, "over_time.html")


class OverTime(Source):
    """Parts that show a run over time."""

    @part
    def goodput(self) -> Markup:
        """Goodput over time by flow."""
        return fill("goodput", drawn=of_run.goodput(self), width_ns=self.bin_ns())

    @part
    def cwnd(self) -> Markup:
        """Congestion window over time by flow."""
        return fill("cwnd", drawn=of_run.cwnd(self))

    @part
    def srtt(self) -> Markup:
        """Smoothed round-trip time over time by flow."""
        return fill("srtt", drawn=of_run.srtt(self))

    @part
    def available(self) -> Markup:
        """AB_est and R_avg of flows of Rapid, under a heading; empty without such flows."""
        if not of_run.rapid_flows(self):
            return Markup()
        sources = of_run.available_rates(self)["source"].unique().sort(descending=True).to_list()
        return fill("available", drawn=of_run.available(self), sources=sources)

    @part
    def pstreams(self) -> Markup:
        """P-streams per second of flows of Rapid; empty without such flows."""
        if not of_run.rapid_flows(self):
            return Markup()
        return fill("pstreams", drawn=of_run.pstreams(self), width_ns=of_run.fairness_width_ns(self))

    @part
    def queue(self) -> Markup:
        """The queue of the router's bottlenecks, and their drops."""
        return fill("queue", drawn=of_run.queue(self))

    @part
    def fairness(self) -> Markup:
        """Jain's index over time and overall, in each direction with several flows."""
        shown = of_run.fairness_of_ways(self).items()
        return fill("fairness", shown=shown, width_ns=of_run.fairness_width_ns(self))
