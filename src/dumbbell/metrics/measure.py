"""Values of metrics, and the queries of a run's tables that metrics use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from dumbbell import analysis
from dumbbell.metrics.flows import (
    datagram_counters,
    goodput_counters,
    limits,
    mean_goodput,
    over_life,
    until_done,
    within_ns,
)
from dumbbell.metrics.registry import METRICS, NOT_COUNTED, NOT_RUNNING, NOT_SAMPLED, Value
from dumbbell.plan import Expectation, Flow
from dumbbell.plan.windows import Window, in_words
from dumbbell.run.content import IN_MEASUREMENT, Run, ping_replies

# What is needed of tcp_info. Of a long run the whole may be larger than memory.
MEASURED_FROM = (
    *analysis.COUNTED_FROM,
    *analysis.LIMITS_FROM,
    *{name for metric in METRICS.values() for name in metric.columns},
)


@dataclass(frozen=True)
class Measured:
    """The value of a metric of one flow or of several; ``why`` is the reason if there is no value."""

    subject: str
    value: float | None
    why: str = ""

    @classmethod
    def of(cls, subject: str, value: Value) -> Measured:
        """From a value, or from the reason why there is none."""
        return cls(subject, None, value) if isinstance(value, str) else cls(subject, float(value))


class Tables:
    """The tables of all phases of a run, queried by flow and time.

    ``tables`` are those of :data:`COUNTED`, and ``cpu_core`` and ``qdisc`` if there are any; ``tcp_info``
    with as many of :data:`MEASURED_FROM` as it has.
    """

    def __init__(self, run: Run, tables: Mapping[str, pl.DataFrame]) -> None:
        self.run = run
        self.phase = run.point.phase("measurement")
        self.flows = {flow.name: flow for flow in self.phase.flows}
        self.rows = tables["tcp_info"].filter(IN_MEASUREMENT)
        self.udp = tables["udp"].filter(IN_MEASUREMENT)
        self.counted = goodput_counters(run, tables)
        self.limits = limits(run, tables)
        self.fetched = analysis.fetches(tables["http_fetch"].filter(IN_MEASUREMENT))

    def measure(self, bound: Expectation) -> Iterator[Measured]:
        """The values of a bound: one for all its flows together, or one for each."""
        metric = METRICS[bound.metric]
        if metric.shared:
            flows = [self.flows[name] for name in bound.flows]
            yield Measured.of(in_words(flows, self.phase.flows), metric.measure(self, flows, bound))
            return
        for name in bound.flows:
            yield Measured.of(name, metric.measure(self, self.flows.get(name, name), bound))

    # queries

    def goodput(self, flow: Flow, window: Window) -> float | None:
        """Goodput in bit/s; None if the flow was not sampled throughout."""
        return mean_goodput(self.run, self.counted, flow, window)

    def goodputs(self, flows: Sequence[Flow], window: Window) -> list[float] | str:
        """The goodput of each flow, or a sentence that names a flow whose goodput is not known."""
        found = {flow.name: self.goodput(flow, window) for flow in flows}
        if absent := [name for name, rate in found.items() if rate is None]:
            return f"goodput of {', '.join(absent)} was not sampled throughout"
        return [rate for rate in found.values() if rate is not None]

    def until_done(self, flow: Flow, window: Window) -> Window:
        """The part of a window before a flow has transferred all of its data."""
        return until_done(self.counted, flow, window)

    def while_running(self, flow: Flow, window: Window) -> Window:
        """The part of a window in which a flow runs; empty if its end is not after its start."""
        start, end = self.until_done(flow, window)
        return max(start, flow.start_ns), min(end, flow.end_ns)

    def samples(self, flow: Flow, window: Window) -> pl.DataFrame | None:
        """A sender's samples in the window, if they reach from its start to its end; else None.

        Only the flow's life counts. Connections of fetches come and go, and so do their samples.
        """
        start, end = self.while_running(flow, window)
        own = self._sender(flow).filter(pl.col("t_ns").is_between(start, end))
        if own.is_empty():
            return None
        first, last = own.select(first=pl.col("t_ns").min(), last=pl.col("t_ns").max()).row(0)
        # A program takes time to start.
        late_ns = max(within_ns(self.run), (1 - analysis.MIN_COVER) * (end - start))
        throughout = first - start <= late_ns and end - last <= within_ns(self.run)
        return own if throughout or flow.kind == "http" else None

    def per_second(self, flow: Flow, counter: str, window: Window) -> float | None:
        """How fast a sender's counter grew, in bit/s if it counts bytes; None if it was not sampled."""
        own = self._sender(flow)
        counted = over_life(self.run, analysis.sender_counter(own, counter), analysis.ended(own))
        return analysis.mean_goodput(counted, *window, within_ns=within_ns(self.run)).get(flow.name)

    def datagrams_per_second(self, flow: Flow, window: Window) -> tuple[float | None, float | None]:
        """How many datagrams a receiver missed and got each second; None if it did not count throughout."""
        lost, received = (
            analysis.mean_goodput(counted, *window, within_ns=within_ns(self.run)).get(flow.name)
            for counted in datagram_counters(self.run, self.udp, flow)
        )
        return lost and lost / 8, received and received / 8

    def limited(self, flow: Flow, window: Window, by: str) -> Value:
        """Share of the time in which one of :data:`analysis.LIMITS` held a flow, or why it is not known."""
        start, end = self.while_running(flow, window)
        if start >= end:
            return NOT_RUNNING
        if flow.of_kind.follows_sockets and self.samples(flow, window) is None:
            return NOT_SAMPLED
        shares = analysis.limit_shares(self.limits.filter(flow=flow.name), (start, end))
        return NOT_COUNTED if shares is None else shares[by]

    def fetches(self, flow: Flow, window: Window) -> pl.DataFrame:
        """Completed fetches that begin in the window, as :func:`dumbbell.analysis.fetches` returns them."""
        begun = (pl.col("flow") == flow.name) & pl.col("t_ns").is_between(*window)
        return self.fetched.filter(begun, "done")

    def replies_ns(self, ping: str, window: Window) -> list[float]:
        """Round-trip times of the requests that a ping sent in the window."""
        (host,) = (host for host, own in self.run.pings("measurement") if own.name == ping)
        t0, (start, end) = self.run.t0_unix_ns("measurement") or 0, window
        replies = ping_replies(self.run.raw(host, "measurement", f"ping-{ping}.txt"))
        return [float(reply.rtt_ns) for reply in replies if start <= reply.sent_unix_ns - t0 < end]

    def percentile(self, values: pl.Series | Sequence[float], bound: Expectation, why: str) -> Value:
        """The percentile that a bound asks for, or else the median; ``why`` if there is no value."""
        asked = 50.0 if bound.percentile is None else bound.percentile
        found = analysis.percentile(pl.Series(values, dtype=pl.Float64, strict=False), asked)
        return why if found is None else found

    def _sender(self, flow: Flow) -> pl.DataFrame:
        return self.rows.filter(pl.col("flow") == flow.name, pl.col("side") == "sender")
