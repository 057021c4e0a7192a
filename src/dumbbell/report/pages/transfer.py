"""A long transfer of one flow: how cwnd, RTT and throughput depend on each other.

The figures follow those of Y.-T. Li's page on an eight-hour transfer (UCL, 2003), which used web100. Here
they use counters of unmodified kernels; docs/variables.md says how exact each of web100's variables is.
"""

from __future__ import annotations

from functools import partial

import polars as pl
from markupsafe import Markup

from dumbbell import analysis
from dumbbell.report import figures, html
from dumbbell.report.figures import transfer
from dumbbell.report.pages.run import Report
from dumbbell.report.parts import part
from dumbbell.studies.source import Missing
from dumbbell.studies.transfer import LongTransfer
from dumbbell.units import human

ZOOM = 1 / 48  # of the time: ten minutes of eight hours

fill = partial(html.part, "transfer.html")


class Transfer(Report, LongTransfer):
    """Figures of one flow of a run; by default of the first one over TCP."""

    @property
    def _source(self) -> str:
        """The source of the signals, in words."""
        return str(self.signals["source"][0])

    @staticmethod
    def _untold(*names: str) -> str:
        return f"{', '.join(names)} cannot be told from this run: no eBPF, and no samples of the receiver"

    # throughput

    @part
    def iperf3(self) -> Markup:
        """Throughput in the reports of both ends of iperf3, in its intervals."""
        found = self.iperf3_rates
        series = {f"{end} on {host}": rates for (end, host), rates in found.items()}
        means = [f"{end} {sum(of['y']) / of.height:.4g} Mbit/s" for (end, _), of in found.items()]
        drawn = transfer.iperf3(series, self.x_max_s)
        return fill("iperf3", drawn=drawn, means=", ".join(means))

    @part
    def instantaneous(self) -> Markup:
        """Rate between two samples."""
        drawn = transfer.throughput(self.samples, self.x_max_s)
        return fill("instantaneous", drawn=drawn, many=_many(self.samples))

    # the window

    @part
    def cwnd_over_time(self, share: float = 1) -> Markup:
        """Congestion window over the first share of the time."""
        until_ns = share * self.x_max_s * 1e9
        rows = self.samples.filter(pl.col("t_ns") <= until_ns)
        drawn = transfer.windows(rows, until_ns / 1e9)
        return fill("cwnd_over_time", drawn=drawn, many=_many(rows))

    @part
    def cwnd_and_rate(self, which: str = "all") -> Markup:
        """Rate against window: ``all`` samples, ``with stalls``, ``without stalls``, ``without signals``."""
        rows = self.windows_and_rates(which)
        kink = analysis.kink(rows["x"], rows["y"]) if which == "all" else None
        return fill(
            "cwnd_and_rate",
            drawn=transfer.cwnd_and_rate(rows, which, kink),
            kink=kink,
            bdp_mb=analysis.bdp_bytes(kink.y * 1e6, self.min_rtt_ns) / 1e6 if kink else None,
            min_rtt_ns=self.min_rtt_ns,
            source=None if which == "all" else self._source,
            **_sampled(rows),
        )

    # signals

    @part
    def cumulative(self, *names: str) -> Markup:
        """Totals of web100's variables over time, each with its growth per second."""
        series, slopes = {}, []
        for name in names:
            if not self.told(name):
                slopes.append(self._untold(name))
                continue
            rows = series[name] = self.total(name)
            if line := analysis.slope(rows["t_ns"] / 1e9, rows["y"]):
                slopes.append(f"{name} {rows['y'][-1]}, {line.slope:.3g} a second (R² {line.r2:.2f})")
        if not series:
            raise Missing(f"{'; '.join(slopes)}.")
        drawn = transfer.totals(series, self.x_max_s)
        return fill("cumulative", drawn=drawn, source=self._source, names=names, slopes="; ".join(slopes))

    @part
    def budget(self) -> Markup:
        """Congestion signals and their explanations."""
        row = analysis.budget(self.signals).to_dicts()[0]
        names = ("CongestionSignals", "SendStall", "FastRetran", "Timeouts", "unexplained")
        signals = row["CongestionSignals"]
        rows = [
            [name, human(row[name]), human(row[name] / signals, "share") if signals else "-"]
            for name in names
        ]
        return fill("budget", rows=rows, source=self._source)

    @part
    def per_second(self, x: str, y: str) -> Markup:
        """One variable against another, second by second."""
        if absent := [name for name in (x, y) if not self.told(name)]:
            raise Missing(f"{self._untold(*absent)}.")
        seconds = self.by_second(x, y)
        drawn = transfer.second_by_second(seconds, x, y)
        return fill("per_second", drawn=drawn, x=x, y=y, source=self._source, **_sampled(seconds))

    @part
    def dup_acks(self) -> Markup:
        """How often duplicate ACKs came in; three of them ask for a retransmission."""
        if not self.told("DupAcksIn"):
            raise Missing(f"{self._untold('DupAcksIn')}.")
        total, fast, seconds, rtt_s = self.duplicate_acks
        rows = [
            ["duplicate ACKs", human(total), f"{total / seconds:.3g}"],
            ["threes of them", human(total // 3), f"{total / 3 / seconds:.3g}"],
            ["fast retransmits", human(fast), f"{fast / seconds:.3g}"],
            ["round trips", human(round(seconds / rtt_s)), f"{1 / rtt_s:.3g}"],
        ]
        every = 3 * seconds / rtt_s / total if total else None
        return fill("dup_acks", rows=rows, source=self._source, rtt_ns=round(1e9 * rtt_s), every=every)

    @part
    def undone(self) -> Markup:
        """Window reductions that the sender's host undid."""
        return fill("undone", rows=[[name, human(grown)] for name, grown in self.taken_back.items()])

    @part
    def timeouts(self) -> Markup:
        """The variables of timeouts at the end of the connection."""
        names = ("Timeouts", "AbruptTimeouts", "SubsequentTimeouts", "CurTimeoutCount")
        told = self.graded(names).get((self.flow.name, "0"), {})
        graded = ((name, *told.get(name, (None, "not told"))) for name in names)
        return fill("timeouts", rows=[[name, human(value), grade] for name, value, grade in graded])

    # packets and round trips

    @part
    def packets(self) -> Markup:
        """The number of packets sent between two samples."""
        sent = self.samples["sent_packets"]
        drawn = figures.histogram(sent, title="packets sent between two samples")
        return fill("packets", drawn=drawn, intervals=sent.count())

    @part
    def rtt_over_time(self) -> Markup:
        """Round-trip times over time."""
        drawn, latest = transfer.rtts(self.samples, self.x_max_s), "latest_rtt_ns" in self.samples.columns
        return fill("rtt_over_time", drawn=drawn, latest=latest, many=_many(self.samples))

    @part
    def rtt_histogram(self) -> Markup:
        """The distribution of the round-trip time."""
        column = "latest_rtt_ns" if "latest_rtt_ns" in self.samples.columns else "srtt_ns"
        values = self.samples[column] / 1e6
        spread = ", ".join(f"{p} % {analysis.percentile(values, p):.4g} ms" for p in (1, 50, 99))
        drawn = figures.histogram(values, title="round-trip time (ms)")
        return fill("rtt_histogram", drawn=drawn, column=column, spread=spread)


def _many(rows: pl.DataFrame) -> int:
    """The number of samples if it exceeds what is drawn, else 0."""
    return rows.height if rows.height > figures.MAX_POINTS else 0


def _sampled(rows: pl.DataFrame) -> dict[str, int]:
    return {"drawn_points": figures.MAX_POINTS, "many": _many(rows)}
