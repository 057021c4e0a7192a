"""A long transfer of one flow, as web100's users looked at theirs: how cwnd, RTT and throughput go together.

The figures follow those of Y.-T. Li's page on an eight-hour transfer (UCL, 2003), from the counters of
unmodified kernels; docs/variables.md says how exact each of web100's variables is.
"""

from __future__ import annotations

from functools import cached_property
from html import escape
from pathlib import Path

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Flow
from dumbbell.report import figures, html
from dumbbell.report.pages.run import Report
from dumbbell.report.parts import Missing, part, show
from dumbbell.run.content import dig
from dumbbell.run.directory import read_json
from dumbbell.units import human

ZOOM = 1 / 48  # of the time: ten minutes of eight hours
UNDOS = ("TcpExtTCPFullUndo", "TcpExtTCPPartialUndo", "TcpExtTCPDSACKUndo", "TcpExtTCPLossUndo")
BY = {
    "ebpf": "counted by eBPF at each segment",
    "trace": "counted from the trace of ca_state",
    "samples": "counted from samples of ca_state, which miss what happens between two of them",
}


class Transfer(Report):
    """Figures of one flow of a run; by default of the first that TCP carries."""

    def __init__(self, run_dir: Path | str, flow: str = "") -> None:
        super().__init__(run_dir)
        self._name = flow

    @property
    def flow(self) -> Flow:
        """The flow that is looked at, or Missing."""
        flows = [f for f in self.plan.phase("measurement").flows if f.kind == "iperf3_tcp"]
        for flow in flows:
            if self._name in ("", flow.name):
                return flow
        raise Missing(f"This run has no TCP flow {self._name}; it has {', '.join(f.name for f in flows)}.")

    @cached_property
    def _tcp_info(self) -> pl.DataFrame:
        own = (pl.col("flow") == self.flow.name) & (pl.col("stream") == "0")
        rows = self.rows("tcp_info", *analysis.SAMPLED_FROM, where=own)
        if rows.filter(side="sender").is_empty():
            raise Missing(f"The sender's socket of {self.flow.name} was not sampled.")
        return rows

    @cached_property
    def samples(self) -> pl.DataFrame:
        """:func:`analysis.samples` of the flow's first stream; Missing if its sender was not sampled."""
        return analysis.samples(self._tcp_info)

    @cached_property
    def signals(self) -> pl.DataFrame:
        """:func:`analysis.signals`, by the best source that the run has."""
        try:
            own = (pl.col("flow") == self.flow.name) & (pl.col("stream") == "0")
            events = self.table("tcp_event", where=own)
        except Missing:
            events = None
        return analysis.signals(self._tcp_info, events)

    def _counted(self, *names: str) -> str:
        """How the signals of these names were counted."""
        source = self.signals["source"][0]
        if "DupAcksIn" not in names or source == "ebpf":
            return BY[source]
        instead = "DupAcksIn are what the receiver had out of order (<code>rcv_ooopack</code>), approximate"
        return instead if len(names) == 1 else f"{BY[source]}; {instead}"

    @staticmethod
    def _untold(*names: str) -> str:
        return f"{', '.join(names)} cannot be told from this run: no eBPF, and no samples of the receiver"

    # throughput

    @part
    def iperf3(self) -> str:
        """Throughput by both ends of iperf3, in its own intervals."""
        series, means = {}, []
        for end, host in (("client", self.flow.src_host), ("server", self.flow.dst_host)):
            report = read_json(
                self.dir / "raw" / host / "measurement" / f"iperf3-{self.flow.name}-{end}.json"
            )
            sums = [interval["sum"] for interval in dig(report, "intervals") or []]
            if sums:
                middle = [(s["start"] + s["end"]) / 2 * 1e9 + self.flow.start_ns for s in sums]
                rates = [s["bits_per_second"] / 1e6 for s in sums]
                series[f"{end} on {host}"] = pl.DataFrame({"t_ns": middle, "y": rates})
                means.append(f"{end} {sum(rates) / len(rates):.4g} Mbit/s")
        if not series:
            raise Missing("Neither end of iperf3 left a report with intervals.")
        figure = figures.lines(series, self.x_max_s, title="throughput (Mbit/s)", unit="Mbit/s")
        return show(figure, f"Throughput by iperf3's own reports of both ends. Means: {', '.join(means)}.")

    @part
    def instantaneous(self) -> str:
        """Rate between two samples."""
        rows = self.samples.select("t_ns", y=pl.col("throughput_bps") / 1e6)
        figure = figures.lines({"sent": rows}, self.x_max_s, title="rate (Mbit/s)", unit="Mbit/s")
        return show(
            figure,
            "Rate between two samples: growth of <code>bytes_sent</code> (TCP_INFO), with retransmissions, "
            f"over the time between them.{_thinned(rows)}",
        )

    # the window

    @part
    def cwnd_over_time(self, share: float = 1) -> str:
        """Congestion window over a share of the time, from the start."""
        until_ns = share * self.x_max_s * 1e9
        rows = self.samples.filter(pl.col("t_ns") <= until_ns)
        series = {
            name: rows.select("t_ns", y=pl.col(column) / 1e6)
            for name, column in (("cwnd", "cwnd_bytes"), ("ssthresh", "ssthresh_bytes"))
        }
        figure = figures.lines(series, until_ns / 1e9, title="window (MB)", unit="MB")
        return show(
            figure,
            "Congestion window and slow-start threshold: <code>snd_cwnd</code> and <code>snd_ssthresh</code> "
            f"times <code>snd_mss</code>.{_thinned(rows)}",
        )

    @part
    def cwnd_and_rate(self, which: str = "all") -> str:
        """Rate against window: ``all`` samples, ``with stalls``, ``without stalls``, ``without signals``."""
        stalled, signalled = pl.col("SendStall") > 0, pl.col("CongestionSignals") > 0
        kept = {
            "all": pl.lit(True),
            "with stalls": stalled,
            "without stalls": ~stalled,
            "without signals": ~signalled,
        }
        both = self.samples.join(self.signals, on=["flow", "stream", "t_ns"])
        rows = both.filter(kept[which], pl.col("throughput_bps").is_not_null())
        rows = rows.select(x=pl.col("cwnd_bytes") / 1e6, y=pl.col("throughput_bps") / 1e6)
        if rows.is_empty():
            raise Missing(f"No sample is left: {which}.")
        found = analysis.kink(rows["x"], rows["y"]) if which == "all" else None
        fit, said = {}, ""
        if found:
            left, right = float(rows["x"].min()), float(rows["x"].max())  # type: ignore[arg-type]
            ends = [
                (x, found.y + slope * (x - found.x))
                for x, slope in ((left, found.below), (right, found.above))
            ]
            fit = {"two straight lines": [ends[0], (found.x, found.y), ends[1]]}
            rtt_ns = self.samples["min_rtt_ns"].min()
            bdp = found.y * 1e6 * float(rtt_ns) / 8e9 / 1e6  # type: ignore[arg-type]
            said = (
                f" The lines meet at {found.x:.3g} MB and {found.y:.4g} Mbit/s (R² {found.r2:.2f}); "
                f"that rate times the least RTT, {human(rtt_ns, 'ns')}, is {bdp:.3g} MB."
            )
        figure = figures.scatter(
            {which: rows}, x_title="cwnd (MB)", y_title="rate since the sample before (Mbit/s)", lines=fit
        )
        counted = "" if which == "all" else f" Signals are {self._counted()}."
        return show(
            figure,
            f"Rate between two samples against the window at the second.{said}{counted}{_sampled(rows)}",
        )

    # signals

    @part
    def cumulative(self, *names: str) -> str:
        """Totals of web100's variables over time, each with its growth per second."""
        series, slopes = {}, []
        for name in names:
            rows = self.signals.select("t_ns", y=pl.col(name).fill_null(0).cum_sum())
            if self.signals[name].null_count() == self.signals.height:
                slopes.append(self._untold(name))
                continue
            series[name] = rows
            if line := analysis.slope(rows["t_ns"] / 1e9, rows["y"]):
                slopes.append(f"{name} {rows['y'][-1]}, {line.slope:.3g} a second (R² {line.r2:.2f})")
        if not series:
            raise Missing(f"{'; '.join(slopes)}.")
        figure = figures.lines(series, self.x_max_s, title="total", unit="")
        return show(figure, f"Totals since the start, {self._counted(*names)}. {'; '.join(slopes)}.")

    @part
    def budget(self) -> str:
        """Congestion signals and what explains them."""
        totals = analysis.budget(self.signals)
        row = totals.to_dicts()[0]
        names = ("CongestionSignals", "SendStall", "FastRetran", "Timeouts", "unexplained")
        signals = row["CongestionSignals"]
        cells = [
            html.row([name, human(row[name]), human(row[name] / signals, "share") if signals else "-"])
            for name in names
        ]
        return (
            f"{html.table(('variable', 'total', 'of all signals'), cells)}"
            f'<p class="note">Signals and their causes, {self._counted()}. A recovery that begins while the '
            "window is reduced already (CWR) is a cause without a signal of its own.</p>"
        )

    @part
    def per_second(self, x: str, y: str) -> str:
        """One variable against another, second by second."""
        absent = [n for n in (x, y) if self.signals[n].null_count() == self.signals.height]
        if absent:
            raise Missing(f"{self._untold(*absent)}.")
        seconds = self.signals.group_by(second=pl.col("t_ns") // 10**9).agg(
            x=pl.col(x).sum(), y=pl.col(y).sum()
        )
        figure = figures.scatter(
            {"a second each": seconds}, x_title=f"{x} in a second", y_title=f"{y} in a second"
        )
        return show(figure, f"Each second's {x} and {y}, {self._counted(x, y)}.{_sampled(seconds)}")

    @part
    def dup_acks(self) -> str:
        """How often duplicate ACKs, three of which ask for a retransmission, came in."""
        counted = self.signals
        if counted["DupAcksIn"].null_count() == counted.height:
            raise Missing(f"{self._untold('DupAcksIn')}.")
        seconds = int(counted["dt_ns"].sum()) / 1e9
        total, fast = int(counted["DupAcksIn"].sum()), int(counted["FastRetran"].sum())
        rtt_s = float(self.samples["srtt_ns"].mean()) / 1e9  # type: ignore[arg-type]
        cells = [
            html.row(["duplicate ACKs", human(total), f"{total / seconds:.3g}"]),
            html.row(["threes of them", human(total // 3), f"{total / 3 / seconds:.3g}"]),
            html.row(["fast retransmits", human(fast), f"{fast / seconds:.3g}"]),
            html.row(["round trips", human(round(seconds / rtt_s)), f"{1 / rtt_s:.3g}"]),
        ]
        every = f" Three come every {3 * seconds / rtt_s / total:.3g} round trips." if total else ""
        return (
            f"{html.table(('what', 'total', 'a second'), cells)}"
            f'<p class="note">Signals are {self._counted("DupAcksIn", "FastRetran")}. Round trips are of '
            f"the mean <code>srtt_us</code>, {human(round(1e9 * rtt_s), 'ns')}.{every}</p>"
        )

    @part
    def undone(self) -> str:
        """Reductions that were taken back, by the sender's host."""
        rows = self.table("snmp").filter(pl.col("host") == self.flow.src_host)
        cells = []
        for name in (*UNDOS, "TcpExtTCPSpuriousRTOs"):
            own = rows.filter(pl.col("name") == name).sort("t_ns")
            cells.append(html.row([name, human(int(own["delta"].sum()) if own.height else 0)]))
        return (
            f"{html.table(('counter', 'growth'), cells)}"
            '<p class="note">CongestionOverCount: what the sending host counted of reductions that it took '
            "back, for all its connections. QuenchRcvd has no source: Linux ignores source quench.</p>"
        )

    @part
    def timeouts(self) -> str:
        """The variables of timeouts, at the end of the connection."""
        names = ("Timeouts", "AbruptTimeouts", "SubsequentTimeouts", "CurTimeoutCount")
        told = self.graded(names).get((self.flow.name, "0"), {})
        cells = [
            html.row([name, human(value), grade])
            for name, (value, grade) in ((name, told.get(name, (None, "not told"))) for name in names)
        ]
        return html.table(("variable", "total", "grade"), cells)

    # packets and round trips

    @part
    def packets(self) -> str:
        """How many packets left between two samples."""
        sent = self.samples["sent_packets"]
        return show(
            figures.histogram(sent, title="packets sent between two samples"),
            f"Growth of <code>data_segs_out</code> in each of {human(sent.count())} intervals of samples.",
        )

    @part
    def rtt_over_time(self) -> str:
        """Round-trip times over time."""
        columns = {"smoothed": "srtt_ns", "least": "min_rtt_ns", "latest": "latest_rtt_ns"}
        series = {
            name: self.samples.select("t_ns", y=pl.col(column) / 1e6)
            for name, column in columns.items()
            if column in self.samples.columns
        }
        latest = "" if "latest" in series else " The latest single sample is had with eBPF only."
        return show(
            figures.lines(series, self.x_max_s, title="round-trip time (ms)", unit="ms"),
            f"<code>srtt_us</code> and <code>min_rtt_us</code> (TCP_INFO).{latest}{_thinned(self.samples)}",
        )

    @part
    def rtt_histogram(self) -> str:
        """How often the round trip took how long."""
        column = "latest_rtt_ns" if "latest_rtt_ns" in self.samples.columns else "srtt_ns"
        values = self.samples[column] / 1e6
        spread = ", ".join(f"{p} % {analysis.percentile(values, p):.4g} ms" for p in (1, 50, 99))
        return show(
            figures.histogram(values, title="round-trip time (ms)"),
            f"<code>{escape(column)}</code> at each sample; percentiles: {spread}.",
        )


def _thinned(rows: pl.DataFrame) -> str:
    few = rows.height <= figures.MAX_POINTS
    return (
        "" if few else f" Of {human(rows.height)} samples, the lowest and highest of each stretch are drawn."
    )


def _sampled(rows: pl.DataFrame) -> str:
    few = rows.height <= figures.MAX_POINTS
    drawn = f"{human(figures.MAX_POINTS)} of {human(rows.height)} points are drawn"
    return "" if few else f" {drawn}, chosen at random."
