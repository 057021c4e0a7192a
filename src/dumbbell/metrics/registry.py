"""The registry of metrics: name, unit, which way is worse, applicable flows, and computation.

Each function with ``@_metric`` is a metric. The function's name is the metric's name; its docstring is what
the scenario reference says. Scenarios set bounds on metrics; verdicts, comparisons and nights measure them.

A function gets the run's tables (:class:`dumbbell.metrics.measure.Tables`), a flow (a list of flows, if flows
share the metric; the name of a ping) and the bound. It returns the value, or a sentence why there is none.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from dumbbell.quantities import Duration, Rate, Ratio

if TYPE_CHECKING:  # they import this module
    from dumbbell.metrics.measure import Tables
    from dumbbell.plan.document import Expectation, Flow

Value = float | str  # a sentence says why there is no value
Share = Annotated[float, Field(ge=0, le=1)]

NOT_SAMPLED = "it was not sampled throughout"
NOT_COUNTED = "its kernel did not count what limited it, or its counters contradict each other"
NOT_RUNNING = "it does not run in that time"
MEDIAN = 50
PERCENTILES = (MEDIAN, 95, 99)  # that nights keep of metrics that have them
RECOVERY = (3, 4)  # TCP_CA_Recovery, TCP_CA_Loss (include/uapi/linux/tcp.h)


@dataclass(frozen=True)
class Metric:
    """One metric. ``unit`` is as in :func:`dumbbell.units.human`."""

    name: str
    title: str
    what: str
    unit: str
    bound: Any  # the type of a bound in a scenario
    worse: Literal["more", "less"]
    least: float  # in its unit: a smaller change says nothing, also where a relative one would be large
    version: int  # of its definition: values of different versions are not compared
    measure: Callable[..., Value]
    of: Callable[[Flow], bool]  # the flows that have it
    pings: bool  # whether pings have it
    commands: bool  # whether sampled flows of kind command have it; a scenario cannot set bounds there
    shared: bool  # one value for several flows, which share the bottleneck of one direction
    least_flows: int  # the fewest flows that it takes
    needs_path: bool
    sampled: bool  # from samples that are there only while a flow runs
    until_done: bool  # by default its window ends when a flow has transferred all that it was asked for
    compared: bool  # whether comparisons and nights look at it
    percentile: str | None  # that its bound takes: what it is of; None if it takes none
    columns: tuple[str, ...]  # of tcp_info that it reads, beside those of goodput

    def known(self, flows: Iterable[Flow], pings: Iterable[str]) -> set[str]:
        """The names of the flows and pings that have it."""
        names = {flow.name for flow in flows if self.of(flow)}
        return names | set(pings) if self.pings else names


METRICS: dict[str, Metric] = {}


def with_percentile(name: str, percentile: int) -> str:
    """The name of a metric's percentile, such as ``rtt p99``; of its median the metric's own name."""
    return name if percentile == MEDIAN else f"{name} p{percentile}"


def compared_names() -> list[str]:
    """The names of all metrics that are compared, and of their percentiles."""
    return [
        with_percentile(metric.name, percentile)
        for metric in METRICS.values()
        if metric.compared
        for percentile in (PERCENTILES if metric.percentile is not None else (MEDIAN,))
    ]


def of_name(name: str) -> Metric | None:
    """The metric that a name, also one of :func:`with_percentile`, is of; None if there is none any more."""
    return METRICS.get(name.partition(" p")[0])


def worse(name: str, *, more: bool) -> bool:
    """Whether a change of a metric, up or down, is for the worse."""
    metric = of_name(name)
    return more == (metric is not None and metric.worse == "more")


def title(name: str) -> str:
    """The metric's name in a sentence; names of percentiles keep theirs."""
    metric, percentile, rank = name.partition(" p")
    words = METRICS[metric].title if metric in METRICS else metric.replace("_", " ")
    return words + percentile + rank


def _known(name: str) -> str:
    if name not in METRICS:
        raise ValueError(f"{name!r} is no metric")
    return name


MetricName = Annotated[str, AfterValidator(_known)]


def _of_tcp(flow: Flow) -> bool:
    return flow.of_kind.counted_by == "tcp"


def _of_udp(flow: Flow) -> bool:
    return flow.of_kind.counted_by == "udp"


def _of_counted_limits(flow: Flow) -> bool:
    return _of_tcp(flow) and (flow.of_kind.follows_sockets or flow.kind == "http")


def _of_any(flow: Flow) -> bool:
    return flow.of_kind.counted_by is not None


def _metric(
    unit: str,
    bound: Any,
    worse: Literal["more", "less"],
    least: float,
    *,
    version: int = 1,
    title: str = "",
    of: Callable[[Flow], bool] = _of_any,
    pings: bool = False,
    commands: bool = True,
    shared: bool = False,
    least_flows: int = 1,
    needs_path: bool = False,
    sampled: bool = False,
    until_done: bool = False,
    compared: bool = True,
    percentile: str | None = None,
    columns: tuple[str, ...] = (),
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    def register(measure: Callable[..., Value]) -> Callable[..., Value]:
        name = measure.__name__
        METRICS[name] = Metric(
            name=name,
            title=title or name.replace("_", " "),
            what=inspect.cleandoc(measure.__doc__ or ""),
            unit=unit,
            bound=bound,
            worse=worse,
            least=least,
            version=version,
            measure=measure,
            of=of,
            pings=pings,
            commands=commands,
            shared=shared,
            least_flows=least_flows,
            needs_path=needs_path,
            sampled=sampled,
            until_done=until_done,
            compared=compared,
            percentile=percentile,
            columns=columns,
        )
        return measure

    return register


@_metric("share", Ratio, worse="less", least=0.001, shared=True, needs_path=True)
def utilisation(tables: Tables, flows: list[Flow], bound: Expectation) -> Value:
    """Sum of the flows' goodputs over the bottleneck's rate, of flows of one direction.

    With full packets at most 95.6 %.
    """
    rates = tables.goodputs(flows, bound.window_ns)
    if isinstance(rates, str):
        return rates
    if tables.run.point.path is None:
        return "the scenario has no path"
    from dumbbell import analysis  # noqa: PLC0415  planning does without

    passing_bps = tables.run.point.path.way(flows[0].direction).mean_rate_bps(*bound.window_ns)
    return analysis.utilisation(rates, passing_bps) if passing_bps else "in an outage nothing passes"


@_metric("", Share, worse="less", least=0.001, title="Jain's index", shared=True, least_flows=2)
def jain_index(tables: Tables, flows: list[Flow], bound: Expectation) -> Value:
    """Jain's index of the goodputs of flows of one direction: 1 is an equal share, 1/n is one of n alone."""
    rates = tables.goodputs(flows, bound.window_ns)
    if isinstance(rates, str):
        return rates
    from dumbbell import analysis  # noqa: PLC0415  planning does without

    index = analysis.jain_index(rates)
    return "nothing was transferred" if index is None else index


@_metric("bps", Rate, worse="less", least=1e4, until_done=True)
def goodput(tables: Tables, flow: Flow, bound: Expectation) -> Value:
    """Payload delivered per second, of each flow.

    By default from its start to its end, which is the end of its transfer if it has an amount to transfer. In
    the part of a given window in which it does not run it delivers nothing.
    """
    window = tables.until_done(flow, bound.window_ns) if bound.until_done else bound.window_ns
    if window[0] >= window[1]:
        return "it had transferred all before that time"
    rate = tables.goodput(flow, window)
    return NOT_SAMPLED if rate is None else rate


@_metric(
    "share",
    Ratio,
    worse="more",
    least=0.0005,
    of=_of_tcp,
    sampled=True,
    columns=("total_retrans", "data_segs_out"),
)
def retransmits(tables: Tables, flow: Flow, bound: Expectation) -> Value:
    """Segments sent again over data segments sent, of each TCP flow."""
    if flow.kind == "http":
        done = tables.fetches(flow, bound.window_ns)
        again, sent = (int(done[counter].sum()) for counter in ("retransmits", "segments"))
        return again / sent if sent else "the server left no counts"
    start, end = tables.while_running(flow, bound.window_ns)
    if start >= end:
        return NOT_RUNNING
    again_bps = tables.per_second(flow, "total_retrans", (start, end))
    sent_bps = tables.per_second(flow, "data_segs_out", (start, end))
    if again_bps is None or sent_bps is None:
        return NOT_SAMPLED
    return again_bps / sent_bps if sent_bps else "nothing was sent"


@_metric("share", Ratio, worse="more", least=0.0005, of=_of_udp, sampled=True)
def loss(tables: Tables, flow: Flow, bound: Expectation) -> Value:
    """Datagrams that did not arrive over all that were sent, of each flow of UDP.

    As its receiver counts them: a datagram is lost when a later one arrives before it.
    """
    window = tables.while_running(flow, bound.window_ns)
    if window[0] >= window[1]:
        return NOT_RUNNING
    lost, received = tables.datagrams_per_second(flow, window)
    if lost is None or received is None:
        return NOT_SAMPLED
    return lost / (lost + received) if lost + received else "no datagram arrived"


@_metric("share", Ratio, worse="more", least=0.002, of=_of_tcp, sampled=True, columns=("ca_state",))
def time_in_recovery(tables: Tables, flow: Flow, bound: Expectation) -> Value:
    """Share of samples in which a connection is in the states Recovery or Loss, of each TCP flow."""
    samples = tables.samples(flow, bound.window_ns)
    if samples is None:
        return NOT_SAMPLED
    return int(samples["ca_state"].is_in(RECOVERY).sum()) / samples.height


@_metric(
    "ns",
    Duration,
    worse="more",
    least=1e4,
    title="RTT",
    of=_of_tcp,
    pings=True,
    sampled=True,
    percentile="",
    columns=("srtt_us",),
)
def rtt(tables: Tables, flow: Flow | str, bound: Expectation) -> Value:
    """A percentile of the round-trip time, of each flow: of TCP its smoothed RTT, of ping its replies."""
    if isinstance(flow, str):
        return tables.percentile(tables.replies_ns(flow, bound.window_ns), bound, "there were no replies")
    samples = tables.samples(flow, bound.window_ns)
    return (
        NOT_SAMPLED if samples is None else tables.percentile(samples["srtt_us"] * 1000.0, bound, NOT_SAMPLED)
    )


@_metric(
    "ns",
    Duration,
    worse="more",
    least=1e5,
    of=lambda flow: flow.kind == "http",
    commands=False,
    sampled=True,
    percentile="of fetches",
)
def completion_time(tables: Tables, flow: Flow, bound: Expectation) -> Value:
    """How long a transfer takes, of each flow of kind http: from the begin of a fetch to its last byte.

    Of fetches it is a percentile over those that begin in the window, each from its begin, with connecting,
    to the last byte.
    """
    if flow.kind != "http":
        return "iperf3 tells when it had written all, not when all had arrived"
    took_ns = tables.fetches(flow, bound.window_ns)["completion_ns"]
    return tables.percentile(took_ns, bound, "no fetch that began in the window was done")


# What limited a flow. Comparisons leave them out: they add up to 1, so they are not six numbers of their own.
_limit = functools.partial(
    _metric, "share", Ratio, least=0.01, of=_of_counted_limits, sampled=True, compared=False
)


@_limit(worse="more")
def app_limited(tables: Tables, flow: Flow, bound: Expectation) -> Value:
    """Share of the time in which the application had nothing to send, of each TCP flow.

    Neither the congestion window nor a buffer held it back: everything that it had written was sent.
    """
    return tables.limited(flow, bound.window_ns, "app_limited")


@_limit(worse="more")
def sndbuf_limited(tables: Tables, flow: Flow, bound: Expectation) -> Value:
    """Share of the time in which the sender's buffer was too small to fill the window, of each TCP flow."""
    return tables.limited(flow, bound.window_ns, "sndbuf_limited")


@_limit(worse="more")
def rwnd_limited(tables: Tables, flow: Flow, bound: Expectation) -> Value:
    """Share of the time in which the receiver's window held the sender back, of each TCP flow."""
    return tables.limited(flow, bound.window_ns, "rwnd_limited")


@_limit(worse="more")
def pacing_limited(tables: Tables, flow: Flow, bound: Expectation) -> Value:
    """Share of the time in which SO_MAX_PACING_RATE held the sender back, of each TCP flow."""
    return tables.limited(flow, bound.window_ns, "pacing_limited")


@_limit(worse="more")
def cpu_limited(tables: Tables, flow: Flow, bound: Expectation) -> Value:
    """Share of the time in which a host's processor held it back, of each TCP flow.

    A core of the sender's host had less than 1 % left while its application had nothing to send, or one of
    the receiver's host while its window was full.
    """
    return tables.limited(flow, bound.window_ns, "cpu_limited")


@_limit(worse="less")
def cwnd_limited(tables: Tables, flow: Flow, bound: Expectation) -> Value:
    """Share of the time in which the congestion control held the sender back, of each TCP flow.

    By its window, or by the rate at which it paces.
    """
    return tables.limited(flow, bound.window_ns, "cwnd_limited")
