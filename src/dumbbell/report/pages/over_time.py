"""A run over time: goodput, window, round-trip time, queue, shares."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Conditions, Flow, windows
from dumbbell.report import figures
from dumbbell.report.parts import Missing, part, show
from dumbbell.report.source import Source
from dumbbell.units import human

Levels = Sequence[tuple[figures.Steps, str]]  # reference lines: values over time, text


class OverTime(Source):
    """Parts that show a run over time."""

    @part
    def goodput(self) -> str:
        """Goodput over time by flow."""
        phase, width = self.plan.phase("measurement"), self.bin_ns()
        rates = analysis.goodput(self.counters, analysis.steps(0, phase.duration_ns, width))
        figure = figures.goodput(rates, phase.flows, self.plan.path, self.x_max_s)
        return show(
            figure,
            f"Payload delivered in each {human(width, 'ns')}: growth of <code>bytes_received</code> "
            "(TCP_INFO of the receiver's socket), interpolated at the edges of the intervals. Bytes of a "
            "fetch are spread evenly over its time, those of UDP of iperf3 over each interval of its server.",
        )

    @part
    def cwnd(self) -> str:
        """Congestion window over time by flow."""
        path = self.plan.path
        levels = (
            [(figures.over_time(path, partial(figures.bdp_packets, path.packet_bytes)), "1 BDP")]
            if path
            else []
        )
        return self._sender_figure(
            "snd_cwnd",
            scale=1,
            title="cwnd (segments)",
            unit="segments",
            levels=levels,
            caption="Congestion window: <code>snd_cwnd</code> (TCP_INFO of the sender's socket), in segments "
            "of <code>snd_mss</code> bytes.",
        )

    @part
    def srtt(self) -> str:
        """Smoothed round-trip time over time by flow."""
        path = self.plan.path
        levels: list[tuple[figures.Steps, str]] = []
        if path:
            empty = figures.over_time(path, lambda _, rtt_ns: rtt_ns / 1e6)
            flows = self.plan.phase("measurement").flows
            for own_us in sorted({0, *(flow.delay_us or 0 for flow in flows)}):
                more = f", with {human(1000 * own_us, 'ns')} of a flow's own" if own_us else ""
                levels.append(
                    ([(at, ms + own_us / 1000) for at, ms in empty], f"RTT of the empty path{more}")
                )
            if path.forward.queue.limit_packets:
                levels.append(
                    (figures.over_time(path, partial(_full_ms, path.packet_bytes)), "RTT with a full queue")
                )
        return self._sender_figure(
            "srtt_us",
            scale=1000,
            title="smoothed RTT (ms)",
            unit="ms",
            levels=levels,
            caption="Smoothed round-trip time: <code>srtt_us</code> (TCP_INFO of the sender's socket).",
        )

    def _sender_figure(
        self, column: str, *, scale: float, title: str, unit: str, levels: Levels, caption: str
    ) -> str:
        there = (pl.col("side") == "sender") & pl.col(column).is_not_null()
        samples = self.rows("tcp_info", "flow", "stream", "t_ns", column, where=there)
        if samples.is_empty():
            raise Missing(f"No sender's socket was sampled, so there is no {title} to show.")
        samples = samples.select("flow", "stream", "t_ns", pl.col(column) / scale).sort("t_ns")
        figure = figures.per_flow(
            samples,
            self.plan.phase("measurement").flows,
            self.x_max_s,
            column=column,
            title=title,
            unit=unit,
            levels=levels,
        )
        if samples.group_by("flow", "stream").len()["len"].max() > figures.MAX_POINTS:  # type: ignore[operator]
            caption += " Thinned to the lowest and highest sample of each stretch."
        return show(figure, caption)

    @property
    def _rapid_flows(self) -> list[Flow]:
        return [f for f in self.plan.phase("measurement").flows if f.congestion_control == "rapid"]

    @part
    def available(self) -> str:
        """AB_est and R_avg of flows of Rapid, under a heading of their own; nothing where there are none."""
        if not self._rapid_flows:
            return ""
        try:
            traced = self.rows("rapid")
        except Missing:
            traced = None
        found = analysis.available(self.rows("tcp_info", *analysis.AVAILABLE_FROM), traced)
        series = {}
        for flow in self._rapid_flows:
            own = found.filter(pl.col("flow") == flow.name)
            for (stream,), rows in own.group_by("stream", maintain_order=True):
                name = figures.label(flow) + f" stream {stream}" * (flow.streams > 1)
                for what, column in (("AB_est", "available_bps"), ("R_avg", "rate_bps")):
                    series[f"{name}: {what}"] = rows.select("t_ns", y=pl.col(column) / 1e6)
        if not series:
            raise Missing("No sender of Rapid told what it had found to be available.")
        path = self.plan.path
        rates_mbps = figures.over_time(path, lambda there, _: there.rate_bps / 1e6) if path else []
        levels = [(rates_mbps, "rate of the bottleneck, headers included")] if path else []
        sources = {
            "trace": "of each p-stream, by the trace (<code>rapid:pstream</code>)",
            "samples": "of the last estimate before each sample, as tcp_rapid tells TCP_INFO "
            "(<code>bbr_bw</code>, and <code>bbr_pacing_gain</code> times it)",
        }
        told = "; ".join(sources[source] for source in found["source"].unique().sort(descending=True))
        return "<h2>Available bandwidth by Rapid</h2>" + show(
            figures.lines(series, self.x_max_s, title="payload (Mbit/s)", unit="Mbit/s", levels=levels),
            f"AB_est is what a p-stream found to be available, R_avg the rate that came of it: {told}.",
        )

    @part
    def pstreams(self) -> str:
        """P-streams per second of flows of Rapid; nothing where there are none."""
        if not self._rapid_flows:
            return ""
        try:
            traced = self.table("rapid")
        except Missing:
            raise Missing("P-streams are counted where sampling.trace is asked for.") from None
        width = max(self.bin_ns(), 1_000_000_000)
        end_ns = self.plan.phase("measurement").duration_ns
        counted = analysis.pstreams(traced, analysis.steps(0, end_ns, width))
        series = {}
        for flow in self._rapid_flows:
            own = counted.filter(pl.col("t_ns").is_between(flow.start_ns, flow.end_ns), flow=flow.name)
            series[figures.label(flow)] = own.select("t_ns", y="pstreams_per_s")
            series[f"{figures.label(flow)}: with an estimate"] = own.select("t_ns", y="estimates_per_s")
        return show(
            figures.lines(series, self.x_max_s, title="p-streams per second", unit="per second"),
            f"P-streams that were acknowledged wholly in each {human(width, 'ns')}, and those of them that "
            "gave an estimate. While a sender recovers from loss it sends none, but with "
            "<code>loss_policy</code> 2.",
        )

    @part
    def queue(self) -> str:
        """Queue of the router's bottlenecks, and what they dropped."""
        path = self.plan.path
        rows = self.table("qdisc")
        if path is not None:
            rows = rows.filter(pl.col("kind").is_in([path.forward.queue.kind, path.reverse.queue.kind]))
        if rows.is_empty():
            raise Missing("No qdisc of the kind that the path asks for was sampled on a router.")
        limits = None
        if path and path.forward.queue.limit_packets:
            limits = figures.over_time(path, lambda there, _: there.queue.limit_packets or 0)
        return show(
            figures.queue(analysis.queue(rows), limits, self.x_max_s),
            "Above: <code>qlen_packets</code> of the bottleneck of each direction, by device and kind of "
            "qdisc. Below: growth of <code>drops</code> since the sample before. Both are from the "
            "qdisc's netlink statistics.",
        )

    @part
    def fairness(self) -> str:
        """Jain's index over time and overall, in each direction that flows share."""
        phase, width = self.plan.phase("measurement"), max(self.bin_ns(), 1_000_000_000)
        rates = analysis.goodput(self.counters, analysis.steps(0, phase.duration_ns, width))
        overall = {c["subject"]: c["measured"] for c in self.checks("jain_index")}
        shown = []
        for flows in windows.ways(phase.flows).values():
            rows = analysis.fairness(rates, {flow.name: flow.life_ns for flow in flows})
            subject = windows.in_words(flows, phase.flows)
            if not rows.is_empty():
                shown.append(
                    show(
                        figures.fairness(rows, overall.get(subject), self.x_max_s),
                        f"Jain's index of the goodputs of {subject} in each {human(width, 'ns')}, over those "
                        "that run throughout: 1 is an equal share, 1/n is one flow alone. From the same "
                        "counters as the goodput.",
                    )
                )
        if not shown:
            raise Missing(
                "At no time do two sampled flows run at once, so there is no share to be fair about."
            )
        return "".join(shown)


def _full_ms(packet_bytes: int, there: Conditions, rtt_ns: float) -> float:
    """Round-trip time when the queue is full."""
    return (rtt_ns + there.fullest_ns(packet_bytes)) / 1e6
