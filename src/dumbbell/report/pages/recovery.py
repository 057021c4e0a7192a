"""Recovery from loss: the window around one recovery, all recoveries, and the cost of loss for fetches.

Where modules/tcp_recovery has logged every ACK, also how windows were reduced, by rule.

After a page on proportional rate reduction (CS244, 2013): cwnd in fast recovery, and the latency of fetches
with and without retransmissions.
"""

from __future__ import annotations

from functools import partial

import polars as pl
from markupsafe import Markup

from dumbbell import analysis
from dumbbell.report import figures, html
from dumbbell.report.pages.run import Report
from dumbbell.report.parts import part
from dumbbell.studies.fetches import PERCENTS, FetchTimes
from dumbbell.studies.recovery import LossRecovery, ReductionLogs
from dumbbell.studies.source import Missing
from dumbbell.units import human

LISTED = 200  # most recoveries in the table
WINDOWS = ("cwnd_before", "cwnd_after", "ssthresh_after", "retransmits")
GUESSES = ("true_positive", "false_positive", "false_negative", "true_negative")

fill = partial(html.part, "recovery.html")


class Recovery(Report, LossRecovery):
    """The recoveries of one flow, found by :class:`LossRecovery`."""

    @part
    def recoveries(self) -> Markup:
        """The table of recoveries."""
        several = self.flow.streams > 1
        rows = [
            [
                str(number),
                *([row["stream"]] if several else []),
                f"{row['begin_ns'] / 1e9:.3f} s",
                "lasts" if row["end_ns"] is None else human(row["end_ns"] - row["begin_ns"], "ns"),
                row["kind"],
                *(human(row[name]) for name in WINDOWS),
            ]
            for number, row in enumerate(self.found.head(LISTED).iter_rows(named=True), start=1)
        ]
        head = ["", *(["stream"] if several else []), "begin", "length", "states"]
        head += ["cwnd before", "cwnd at the end", "ssthresh at the end", "sent again"]
        lengths = (self.found["end_ns"] - self.found["begin_ns"]).drop_nulls()
        return fill(
            "recoveries",
            head=head,
            rows=rows,
            count=self.found.height,
            flow=self.flow.name,
            source=self.found["source"][0],
            median_ns=analysis.percentile(lengths, 50),
        )

    @part
    def around(self, number: int = 1, around_s: float = 2.0) -> Markup:
        """Window, threshold, pipe and states around the number-th recovery, counted from 1."""
        near = self.near(number, around_s)
        drawn = figures.around(near.windows, near.pipe, near.states, near.since_ns, near.until_ns)
        return fill("around", drawn=drawn, number=number, count=self.found.height, near=near)


class Reductions(ReductionLogs):
    """Window reductions in the ACK logs of a run directory of one or many points."""

    @part
    def table(self) -> Markup:
        """Start and end of reductions, their durations, and the data sent in them."""
        body = []
        for names, rows in self.groups:
            told = analysis.summary_of_reductions(rows)
            body.append(
                [
                    *names,
                    str(told.reductions),
                    *(human(share, "share") for share in told.signs),
                    _spread(told.pipe_left),
                    _spread(told.cwnd_left),
                    human(analysis.percentile(told.length_ns, 50), "ns"),
                    human(analysis.percentile(told.silence_rtts, 50)),
                    human(told.most_sent),
                    human(told.timeouts / told.reductions, "share"),
                ]
            )
        head = ["loss", "TCP", "reductions", "pipe below ssthresh", "at it", "above it"]
        head += ["pipe - ssthresh at the end", "cwnd - ssthresh at the end"]
        head += ["length", "silence (RTTs)", "most at once", "timeouts"]
        return fill("reductions", head=head, rows=body)

    @part
    def figure(self, loss: str = "") -> Markup:
        """Pipe during the longest reduction of each control, on the paths with one loss."""
        chosen = loss or self.losses[0]
        if chosen not in self.losses:
            raise Missing(f"No path loses {loss}; there are {', '.join(self.losses)}.")
        return fill("longest", drawn=figures.pipes(self.longest(chosen)), loss=chosen)


class Fetches(FetchTimes):
    """Latency of fetches over HTTP by size and loss rate, of a run directory of one or many points."""

    @part
    def table(self) -> Markup:
        """Percentiles with their intervals, and the number of fetches with loss."""
        rows = [
            [
                *names,
                human(found.fetches),
                *(_interval(found.percentiles[percent], "ns") for percent in PERCENTS),
                _interval(found.retransmitted, "share"),
            ]
            for names, found in self.groups
        ]
        head = ("bytes", "loss", "TCP", "connections", "fetches", "median", "95 %", "99 %", "sent again")
        return fill("fetches", head=head, rows=rows)

    @part
    def figure(self) -> Markup:
        """Mean durations of fetches with and without retransmissions."""
        names = [f"{size} bytes, {loss}, {rest}" for (size, loss, rest, _), _ in self.groups]
        sets = {
            "nothing sent again": [found.clean for _, found in self.groups],
            "something sent again": [found.lossy for _, found in self.groups],
        }
        drawn = figures.bars(names, sets, title="completion time (ms)", scale=1e6)
        return fill("fetch_means", drawn=drawn)

    @part
    def guesses(self) -> Markup:
        """How well a threshold of two standard deviations detects fetches with loss."""
        rows = [[*names, *(str(found.guess[name]) for name in GUESSES)] for names, found in self.groups]
        head = ["bytes", "loss", "TCP", "connections", "slow, sent again", "slow, nothing again"]
        head += ["not slow, sent again", "not slow, nothing again"]
        return fill("guesses", head=head, rows=rows)


def _spread(values: pl.Series) -> list[str]:
    low, middle, high = (human(analysis.percentile(values, percent)) for percent in (5, 50, 95))
    return [middle, f"{low} to {high}"]


def _interval(found: analysis.Interval | None, unit: str) -> str | list[str]:
    if found is None:
        return "-"
    return [human(found.value, unit), f"{human(found.low, unit)} to {human(found.high, unit)}"]
