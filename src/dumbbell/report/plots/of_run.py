"""Figures of one point."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from dumbbell import analysis
from dumbbell.plan import Flow, windows
from dumbbell.report import figures
from dumbbell.report.plots.kinds import figure_of_run
from dumbbell.studies.limits import what_limited
from dumbbell.studies.sequence import time_sequence as sequence
from dumbbell.studies.source import Missing, Source
from dumbbell.units import parse_duration

LEAST_NS = 10**9  # the least interval of what is noise in shorter ones
FIRST_NS = 2 * 10**9  # of a flow, by default in its time-sequence graph
LIMITS = {
    "app_limited": "application",
    "sndbuf_limited": "sender's buffer",
    "rwnd_limited": "receiver's window",
    "pacing_limited": "pacing",
    "cpu_limited": "processor",
    "limit_unknown": "not known",
    "cwnd_limited": "congestion window",
}


@figure_of_run
def goodput(run: Source, width: str = "") -> go.Figure:
    """Payload delivered over time by each flow, in intervals of ``width``, such as ``100ms``."""
    width_ns = parse_duration(width) if width else run.bin_ns()
    return figures.goodput(run.goodputs(width_ns), run.planned_flows, run.plan.path, run.x_max_s)


@figure_of_run
def cwnd(run: Source) -> go.Figure:
    """Congestion window of each sender at each sample."""
    samples = sampled(run, "snd_cwnd", "cwnd (segments)", scale=1)
    return figures.cwnd(samples, run.planned_flows, run.plan.path, run.x_max_s)


@figure_of_run
def srtt(run: Source) -> go.Figure:
    """Smoothed round-trip time of each sender at each sample."""
    samples = sampled(run, "srtt_us", "smoothed RTT (ms)", scale=1000)
    return figures.srtt(samples, run.planned_flows, run.plan.path, run.x_max_s)


@figure_of_run
def queue(run: Source) -> go.Figure:
    """Length of the queue of each bottleneck, and the packets that it dropped."""
    path = run.plan.path
    rows = run.table("qdisc")
    if path is not None:
        rows = rows.filter(pl.col("kind").is_in([path.forward.queue.kind, path.reverse.queue.kind]))
    if rows.is_empty():
        raise Missing("No qdisc of the kind that the path asks for was sampled on a router.")
    return figures.queue(analysis.queue(rows), path, run.x_max_s)


@figure_of_run
def fairness(run: Source, flows: str = "") -> go.Figure:
    """Jain's index over time of the flows of one direction; ``flows`` says which, as checks do."""
    found = fairness_of_ways(run)
    if flows and flows not in found:
        raise Missing(f"There is no fairness of {flows}; there is that of {', '.join(found)}.")
    return found[flows or next(iter(found))]


def fairness_of_ways(run: Source) -> dict[str, go.Figure]:
    """Jain's index over time, in each direction with several flows, by words for these flows; or Missing."""
    rates = run.goodputs(fairness_width_ns(run))
    overall = {c["subject"]: c["measured"] for c in run.checks("jain_index")}
    shown = {}
    for flows in windows.ways(run.planned_flows).values():
        rows = analysis.fairness(rates, {flow.name: flow.life_ns for flow in flows})
        subject = windows.in_words(flows, run.planned_flows)
        if not rows.is_empty():
            shown[subject] = figures.fairness(rows, overall.get(subject), run.x_max_s)
    if not shown:
        raise Missing("At no time do two sampled flows run at once, so there is no share to be fair about.")
    return shown


def fairness_width_ns(run: Source) -> int:
    """The width of the intervals of Jain's index and of p-streams."""
    return max(run.bin_ns(), LEAST_NS)


@figure_of_run
def limits(run: Source) -> go.Figure:
    """What limited each flow, as shares of its time."""
    found = [of for of in what_limited(run) if of.shares]
    if not found:
        raise Missing("The kernels did not count what limited the flows.")
    shares = {
        title: [(of.shares or {}).get(name) for of in found]
        for name, title in LIMITS.items()
        if any((of.shares or {}).get(name) for of in found)
    }
    return figures.stacks([of.flow.name for of in found], shares, title="share of the flow's time")


@figure_of_run
def rtt_distribution(run: Source) -> go.Figure:
    """Share of samples of each sender whose smoothed RTT is not larger."""
    samples = sampled(run, "srtt_us", "smoothed RTT (ms)", scale=1000)
    sets = {
        figures.label(flow): samples.filter(flow=flow.name)["y"]
        for flow in run.planned_flows
        if samples.filter(flow=flow.name).height
    }
    return figures.distributions(sets, title="smoothed RTT (ms)", unit="ms")


@figure_of_run
def time_sequence(  # noqa: PLR0917
    run: Source, flow: str = "", since: str = "", until: str = "", stream: int = 0, host: str = ""
) -> go.Figure:
    """Segments, ACKs, SACK blocks and the receiver's window, as tcptrace draws them.

    From the capture nearest to the sender, or at ``host``, else from a trace; ``since`` and ``until`` are
    times since t0, such as ``2.5s``, by default the flow's first two seconds. By default of the first flow.
    """
    flows = {planned.name: planned for planned in run.planned_flows}
    if flow and flow not in flows:
        raise Missing(f"There is no flow {flow}; there are {', '.join(flows)}.")
    chosen = flow or next(iter(flows))
    since_ns = parse_duration(since) if since else flows[chosen].start_ns
    until_ns = parse_duration(until) if until else since_ns + FIRST_NS
    return figures.time_sequence(sequence(run, chosen, since_ns, until_ns, stream=int(stream), host=host))


@figure_of_run
def available(run: Source) -> go.Figure:
    """AB_est and R_avg of each stream of Rapid."""
    drawn = figures.available(available_rates(run), rapid_flows(run), run.plan.path, run.x_max_s)
    if drawn is None:
        raise Missing("No sender of Rapid told what it had found to be available.")
    return drawn


@figure_of_run
def pstreams(run: Source) -> go.Figure:
    """P-streams per second of each flow of Rapid, and those that gave an estimate."""
    try:
        traced = run.table("rapid")
    except Missing:
        raise Missing("P-streams are counted where sampling.trace is asked for.") from None
    end_ns = run.plan.phase("measurement").duration_ns
    counted = analysis.pstreams(traced, analysis.steps(0, end_ns, fairness_width_ns(run)))
    return figures.pstreams(counted, rapid_flows(run), run.x_max_s)


def rapid_flows(run: Source) -> list[Flow]:
    """The flows whose congestion control is Rapid."""
    return [flow for flow in run.planned_flows if flow.congestion_control == "rapid"]


def available_rates(run: Source) -> pl.DataFrame:
    """:func:`dumbbell.analysis.available` of a run."""
    try:
        traced = run.rows("rapid")
    except Missing:
        traced = None
    return analysis.available(run.rows("tcp_info", *analysis.AVAILABLE_FROM), traced)


def sampled(run: Source, column: str, what: str, *, scale: float) -> pl.DataFrame:
    """A column of senders' samples divided by a scale, ``[flow, stream, t_ns, y]``, or Missing."""
    there = (pl.col("side") == "sender") & pl.col(column).is_not_null()
    samples = run.rows("tcp_info", "flow", "stream", "t_ns", column, where=there)
    if samples.is_empty():
        raise Missing(f"No sender's socket was sampled, so there is no {what} to show.")
    return samples.select("flow", "stream", "t_ns", y=pl.col(column) / scale).sort("t_ns")
