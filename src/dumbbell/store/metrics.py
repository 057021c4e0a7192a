"""The value of each metric that a scenario can set bounds to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from dumbbell import analysis
from dumbbell.model import Metric
from dumbbell.plan import Expectation
from dumbbell.store.run import IN_MEASUREMENT, Run, goodput_counters, mean_goodputs, ping_replies

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
RECOVERY = (3, 4)  # TCP_CA_Recovery, TCP_CA_Loss (include/uapi/linux/tcp.h)


@dataclass(frozen=True)
class Measured:
    """A metric of a flow, or of several; ``why`` says why there is no value."""

    subject: str
    value: float | None
    why: str = ""


def measure(run: Run, tables: dict[str, pl.DataFrame], bound: Expectation) -> Iterator[Measured]:
    """What a bound is about, of the tables of all phases: one value for all its flows, or one for each.

    ``tables`` are those of :data:`COUNTED`; ``tcp_info`` with as much of :data:`MEASURED_FROM` as it has.
    """
    rows, counted = tables["tcp_info"].filter(IN_MEASUREMENT), goodput_counters(tables)
    fetched = analysis.fetches(tables["http_fetch"].filter(IN_MEASUREMENT))
    kinds = {flow.name: flow.kind for flow in run.point.phase("measurement").flows}
    if bound.metric in ("utilisation", "jain_index"):
        yield _shared(run, counted, bound)
        return
    for flow in bound.flows:
        own = fetched.filter((pl.col("flow") == flow) & pl.col("t_ns").is_between(*bound.window_ns))
        match bound.metric:
            case "completion_time" | "retransmits" if kinds.get(flow) == "http":
                yield _of_fetches(own, flow, bound)
            case "goodput":
                rate = mean_goodputs(run, counted, bound.window_ns).get(flow)
                yield Measured(flow, rate, "it was not sampled throughout")
            case "retransmits":
                yield _retransmits(rows, flow, bound)
            case "time_in_recovery":
                samples = _samples(rows, flow, bound)
                share = None if samples is None else samples["ca_state"].is_in(RECOVERY).mean()
                yield Measured(flow, _number(share), "it was not sampled throughout")
            case "rtt":
                yield _rtt(run, rows, flow, bound)
            case _:
                yield Measured(flow, None, "iperf3 tells when it had written all, not when all had arrived")


def _shared(run: Run, counted: pl.DataFrame, bound: Expectation) -> Measured:
    flows = {flow.name: flow for flow in run.point.phase("measurement").flows}
    subject = "all flows" if set(bound.flows) == set(flows) else ", ".join(bound.flows)
    found = mean_goodputs(run, counted, bound.window_ns)
    if absent := [name for name in bound.flows if name not in found]:
        return Measured(subject, None, f"goodput of {', '.join(absent)} was not sampled throughout")
    rates = [found[name] for name in bound.flows]
    if bound.metric == "jain_index":
        return Measured(subject, analysis.jain_index(rates), "nothing was transferred")
    if run.point.path is None:
        return Measured(subject, None, "the scenario has no path")
    way = run.point.path.way(flows[bound.flows[0]].direction)
    bottleneck_bps = way.mean_rate_bps(*bound.window_ns)
    return Measured(subject, analysis.utilisation(rates, bottleneck_bps))


def _retransmits(rows: pl.DataFrame, flow: str, bound: Expectation) -> Measured:
    own = rows.filter((pl.col("flow") == flow) & (pl.col("side") == "sender"))
    again, sent = (
        analysis.mean_goodput(analysis.sender_counter(own, column), *bound.window_ns).get(flow)
        for column in ("total_retrans", "data_segs_out")
    )
    if again is None or sent is None:
        return Measured(flow, None, "it was not sampled throughout")
    return Measured(flow, again / sent if sent else None, "nothing was sent")


def _of_fetches(fetched: pl.DataFrame, flow: str, bound: Expectation) -> Measured:
    done = fetched.filter("done")
    if bound.metric == "completion_time":
        percentile = 50.0 if bound.percentile is None else bound.percentile
        value = analysis.percentile(done["completion_ns"], percentile)
        return Measured(flow, value, "no fetch that began in the window was done")
    again, sent = done.select(pl.col("retransmits", "segments").sum()).row(0)
    return Measured(flow, again / sent if sent else None, "the server left no counts")


def _rtt(run: Run, rows: pl.DataFrame, flow: str, bound: Expectation) -> Measured:
    start, end = bound.window_ns
    percentile = 50.0 if bound.percentile is None else bound.percentile
    for host, ping in run.pings("measurement"):
        if ping.name == flow:
            t0 = run.t0_unix_ns("measurement") or 0
            replies = ping_replies(run.raw(host, "measurement", f"ping-{flow}.txt"))
            inside = [reply.rtt_ns for reply in replies if start <= reply.sent_unix_ns - t0 < end]
            rtts = pl.Series(inside, dtype=pl.Float64)
            return Measured(flow, analysis.percentile(rtts, percentile), "there were no replies")
    samples = _samples(rows, flow, bound)
    rtts = pl.Series([], dtype=pl.Float64) if samples is None else samples["srtt_us"] * 1000.0
    return Measured(flow, analysis.percentile(rtts, percentile), "it was not sampled throughout")


def _samples(rows: pl.DataFrame, flow: str, bound: Expectation) -> pl.DataFrame | None:
    """A sender's samples within the window, if they cover it."""
    start, end = bound.window_ns
    own = rows.filter((pl.col("flow") == flow) & (pl.col("side") == "sender"))
    own = own.filter(pl.col("t_ns").is_between(start, end))
    if own.is_empty():
        return None
    covered = own.select(pl.col("t_ns").max() - pl.col("t_ns").min()).item()
    return own if covered >= analysis.MIN_COVER * (end - start) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
