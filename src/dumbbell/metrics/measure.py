"""The value of each metric that a scenario can set bounds to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Expectation, Flow
from dumbbell.plan.windows import SHARED, Window, in_words
from dumbbell.run.content import (
    IN_MEASUREMENT,
    Run,
    goodput_counters,
    mean_goodput,
    over_life,
    ping_replies,
    until_done,
    within_ns,
)
from dumbbell.scenario import Metric

UNITS: dict[Metric, str] = {
    "utilisation": "share",
    "jain_index": "",
    "goodput": "bps",
    "retransmits": "share",
    "time_in_recovery": "share",
    "rtt": "ns",
    "completion_time": "ns",
}
# What is needed of tcp_info. Of a long run the whole may be larger than memory.
MEASURED_FROM = (*analysis.COUNTED_FROM, "ca_state", "srtt_us", "total_retrans", "data_segs_out")
NOT_SAMPLED = "it was not sampled throughout"
NOT_RUNNING = "it does not run in that time"
RECOVERY = (3, 4)  # TCP_CA_Recovery, TCP_CA_Loss (include/uapi/linux/tcp.h)


@dataclass(frozen=True)
class Measured:
    """A metric of a flow, or of several; ``why`` says why there is no value."""

    subject: str
    value: float | None
    why: str = ""


class Metrics:
    """Metrics of a run, from the tables of all its phases.

    ``tables`` are those of :data:`COUNTED`; ``tcp_info`` with as much of :data:`MEASURED_FROM` as it has.
    """

    def __init__(self, run: Run, tables: Mapping[str, pl.DataFrame]) -> None:
        self.run = run
        self.phase = run.point.phase("measurement")
        self.flows = {flow.name: flow for flow in self.phase.flows}
        self.rows = tables["tcp_info"].filter(IN_MEASUREMENT)
        self.counted = goodput_counters(run, tables)
        self.fetched = analysis.fetches(tables["http_fetch"].filter(IN_MEASUREMENT))

    def measure(self, bound: Expectation) -> Iterator[Measured]:
        """What a bound is about: one value for all its flows, or one for each."""
        if bound.metric in SHARED:
            yield self._shared(bound)
            return
        for name in bound.flows:
            if name not in self.flows:
                yield self._ping_rtt(name, bound)
            else:
                yield self._of_flow(self.flows[name], bound)

    def _of_flow(self, flow: Flow, bound: Expectation) -> Measured:
        match bound.metric:
            case "goodput":
                return self._goodput(flow, bound)
            case "completion_time" | "retransmits" if flow.kind == "http":
                return self._of_fetches(flow, bound)
            case "retransmits":
                return self._retransmits(flow, bound)
            case "time_in_recovery":
                samples = self._samples(flow, bound)
                share = None if samples is None else samples["ca_state"].is_in(RECOVERY).mean()
                return Measured(flow.name, _number(share), NOT_SAMPLED)
            case "rtt":
                samples = self._samples(flow, bound)
                rtts = pl.Series([], dtype=pl.Float64) if samples is None else samples["srtt_us"] * 1000.0
                return Measured(flow.name, _percentile(rtts, bound), NOT_SAMPLED)
            case _:
                return Measured(
                    flow.name, None, "iperf3 tells when it had written all, not when all had arrived"
                )

    def _goodput(self, flow: Flow, bound: Expectation) -> Measured:
        window = until_done(self.counted, flow, bound.window_ns) if bound.until_done else bound.window_ns
        if window[0] >= window[1]:
            return Measured(flow.name, None, "it had transferred all before that time")
        return Measured(flow.name, mean_goodput(self.run, self.counted, flow, window), NOT_SAMPLED)

    def _shared(self, bound: Expectation) -> Measured:
        flows = [self.flows[name] for name in bound.flows]
        subject = in_words(flows, self.phase.flows)
        found = {flow.name: mean_goodput(self.run, self.counted, flow, bound.window_ns) for flow in flows}
        rates = [rate for rate in found.values() if rate is not None]
        if absent := [name for name, rate in found.items() if rate is None]:
            return Measured(subject, None, f"goodput of {', '.join(absent)} was not sampled throughout")
        if bound.metric == "jain_index":
            return Measured(subject, analysis.jain_index(rates), "nothing was transferred")
        if self.run.point.path is None:
            return Measured(subject, None, "the scenario has no path")
        way = self.run.point.path.way(flows[0].direction)
        return Measured(subject, analysis.utilisation(rates, way.mean_rate_bps(*bound.window_ns)))

    def _retransmits(self, flow: Flow, bound: Expectation) -> Measured:
        start, end = self._while_running(flow, bound)
        if start >= end:
            return Measured(flow.name, None, NOT_RUNNING)
        own = self._sender(flow)
        again, sent = (
            analysis.mean_goodput(
                over_life(self.run, analysis.sender_counter(own, column), analysis.ended(own)),
                start,
                end,
                within_ns=within_ns(self.run),
            ).get(flow.name)
            for column in ("total_retrans", "data_segs_out")
        )
        if again is None or sent is None:
            return Measured(flow.name, None, NOT_SAMPLED)
        return Measured(flow.name, again / sent if sent else None, "nothing was sent")

    def _of_fetches(self, flow: Flow, bound: Expectation) -> Measured:
        begun = (pl.col("flow") == flow.name) & pl.col("t_ns").is_between(*bound.window_ns)
        done = self.fetched.filter(begun, "done")
        if bound.metric == "completion_time":
            value = _percentile(done["completion_ns"], bound)
            return Measured(flow.name, value, "no fetch that began in the window was done")
        again, sent = done.select(pl.col("retransmits", "segments").sum()).row(0)
        return Measured(flow.name, again / sent if sent else None, "the server left no counts")

    def _ping_rtt(self, name: str, bound: Expectation) -> Measured:
        (host,) = (host for host, ping in self.run.pings("measurement") if ping.name == name)
        t0, (start, end) = self.run.t0_unix_ns("measurement") or 0, bound.window_ns
        replies = ping_replies(self.run.raw(host, "measurement", f"ping-{name}.txt"))
        inside = [reply.rtt_ns for reply in replies if start <= reply.sent_unix_ns - t0 < end]
        return Measured(
            name, _percentile(pl.Series(inside, dtype=pl.Float64), bound), "there were no replies"
        )

    def _while_running(self, flow: Flow, bound: Expectation) -> Window:
        """The part of a window in which a flow runs; of none the end is no later than the start."""
        start, end = until_done(self.counted, flow, bound.window_ns)
        return max(start, flow.start_ns), min(end, flow.end_ns)

    def _sender(self, flow: Flow) -> pl.DataFrame:
        return self.rows.filter(pl.col("flow") == flow.name, pl.col("side") == "sender")

    def _samples(self, flow: Flow, bound: Expectation) -> pl.DataFrame | None:
        """A sender's samples within the window, if they reach from its begin to its end.

        As far as the flow lives in it. Connections of fetches come and go, and so do their samples.
        """
        start, end = self._while_running(flow, bound)
        own = self._sender(flow).filter(pl.col("t_ns").is_between(start, end))
        if own.is_empty():
            return None
        first, last = own.select(first=pl.col("t_ns").min(), last=pl.col("t_ns").max()).row(0)
        # A program takes time to begin.
        late_ns = max(within_ns(self.run), (1 - analysis.MIN_COVER) * (end - start))
        known = flow.kind == "http" or (first - start <= late_ns and end - last <= within_ns(self.run))
        return own if known else None


def _percentile(values: pl.Series, bound: Expectation) -> float | None:
    return analysis.percentile(values, 50.0 if bound.percentile is None else bound.percentile)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
