"""What flows delivered, by every measurement that counts it, and the table of flows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from dumbbell import analysis
from dumbbell.kinds.found import FOUND
from dumbbell.plan import Flow, Phase
from dumbbell.plan.windows import Window, default_window
from dumbbell.run.content import IN_MEASUREMENT, Run, start_error_ns
from dumbbell.run.of_path import drops_of

COUNTED: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "tcp_info": analysis.counters,
    "udp": analysis.datagram_counters,
    "http_fetch": analysis.fetch_counters,
}
# Samples cover a window if they leave out at most so many sampling intervals of it.
WITHIN_SAMPLES = 2
RTT_PERCENTS = (50, 95)  # that the table of flows has


def goodput_counters(run: Run, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Payload bytes delivered so far in the measurement, from the start of each flow's life to its end.

    From all tables of :data:`COUNTED`, and from reports of those kinds of flows that have others.
    """
    rows = {name: tables[name].filter(IN_MEASUREMENT) for name in COUNTED}
    flows = run.point.phase("measurement").flows
    intervals = [
        analysis.interval_counters(flow.name, told, flow.life_ns)
        for flow in flows
        if (told := FOUND[flow.kind].intervals(run, flow)) is not None
    ]
    counted = pl.concat([*(count(rows[name]) for name, count in COUNTED.items()), *intervals])
    counted_all = [flow.name for flow in flows if FOUND[flow.kind].ended(run, flow)]
    ends = pl.concat([analysis.ended(rows["tcp_info"]), pl.DataFrame({"flow": counted_all, "stream": "0"})])
    return over_life(run, counted, ends)


def datagram_counters(run: Run, udp: pl.DataFrame, flow: Flow) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Datagrams that a flow's receiver missed and got so far, as counters of :func:`analysis.goodput`.

    From the measurement's rows of ``udp``, or from reports of a kind that has others.
    """
    found = FOUND[flow.kind]
    if (told := found.datagrams(run, flow)) is None:
        own = udp.filter(flow=flow.name)
        lost, received = (
            analysis.receiver_counter(own, column) for column in ("lost_packets", "received_packets")
        )
    else:
        lost, received = (
            analysis.interval_counters(
                flow.name, [(begin, end, counts[i]) for begin, end, *counts in told], flow.life_ns
            )
            for i in (0, 1)
        )
    ends = pl.DataFrame({"flow": [flow.name], "stream": "0"}).filter(found.ended(run, flow))
    return over_life(run, lost, ends), over_life(run, received, ends)


def over_life(run: Run, counted: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """:func:`analysis.over_life` of the measurement's flows."""
    flows = run.point.phase("measurement").flows
    return analysis.over_life(counted, ends, {flow.name: flow.life_ns for flow in flows})


def within_ns(run: Run) -> int:
    """How much of a window samples may leave out."""
    return WITHIN_SAMPLES * run.point.phase("measurement").sampling_interval_ns


def mean_goodput(run: Run, counted: pl.DataFrame, flow: Flow, window_ns: Window) -> float | None:
    """Mean goodput of a flow over a window, from :func:`goodput_counters`; None if they do not cover it.

    Before its start a flow has delivered nothing; after its end it delivers what is still in flight.
    """
    own = counted.filter(pl.col("flow") == flow.name)
    last_ns: int | None = own["t_ns"].max()  # type: ignore[assignment]
    start = max(window_ns[0], flow.start_ns)
    end = min(window_ns[1], max(flow.end_ns, last_ns or 0))
    if start >= end:
        return 0.0
    rate = analysis.mean_goodput(own, start, end, within_ns=within_ns(run)).get(flow.name)
    return None if rate is None else rate * (end - start) / (window_ns[1] - window_ns[0])


def until_done(counted: pl.DataFrame, flow: Flow, window_ns: Window) -> Window:
    """The part of a window before a flow has transferred all of its data, by its counters."""
    start, end = window_ns
    if flow.asked_bytes is not None:
        total = pl.col("bytes")
        grown = total.diff().over("stream", order_by="t_ns").fill_null(total)
        own = counted.filter(pl.col("flow") == flow.name).sort("t_ns", "bytes").with_columns(grown)
        done_ns = own.filter(total.cum_sum() >= flow.asked_bytes)["t_ns"].min()
        end = min(end, done_ns) if isinstance(done_ns, int) else end
    return start, end


def limits(run: Run, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """:func:`analysis.limits` of the measurement's flows. Of fetches ``stream`` is a connection's cookie."""
    cpu_core = tables.get("cpu_core")
    if cpu_core is not None and not cpu_core.is_empty():
        cpu_core = cpu_core.filter(IN_MEASUREMENT)
    fetched = [flow.name for flow in run.point.phase("measurement").flows if flow.kind == "http"]
    sampled = tables["tcp_info"].filter(IN_MEASUREMENT, ~pl.col("flow").is_in(fetched))
    ends = analysis.fetch_ends(tables["http_fetch"].filter(IN_MEASUREMENT))
    drops = policed(run, tables)
    return pl.concat(
        [analysis.limits(sampled, cpu_core, drops), analysis.fetch_limits(ends, cpu_core, drops)]
    )


def policed(run: Run, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame | None:
    """What each flow's direction dropped, as :func:`analysis.limits` takes it; None without a policer."""
    path = run.point.path
    ways = [way for way, of in path.ways if of.policer] if path else []
    drops = {way: drops_of(run, tables, way) for way in ways}
    of_flows = [
        drops[flow.direction].with_columns(flow=pl.lit(flow.name))
        for flow in run.point.phase("measurement").flows
        if flow.direction in drops
    ]
    return pl.concat(of_flows) if of_flows else None


def flows_table(run: Run, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """A row for each flow of each phase: the planned and the measured values.

    ``goodput_bps`` is over ``window_start_ns`` to ``window_end_ns``: the default window of the flow. So
    are the shares of its time of :data:`analysis.LIMITS` and :data:`analysis.CAUSES`, and its RTTs.
    """
    counted = goodput_counters(run, tables)
    limited = limits(run, tables)
    rows = []
    for phase, flow in _flows(run.point.phases):
        measuring = phase.phase == "measurement"
        window = default_window([flow.life_ns], run.point.warm_up_ns) if measuring else None
        window = window and until_done(counted, flow, window)
        if window and window[0] >= window[1]:
            window = None  # it ended before the warm-up did
        found = FOUND[flow.kind]
        controls = found.congestion_controls(run, tables, flow) if flow.congestion_control else set()
        rows.append(
            {"run": run.id, "point": run.point.id, "phase": phase.phase}
            | flow.model_dump(exclude={"rate_steps", "transfers", "sender", "receiver"})
            | {
                "congestion_control_measured": ",".join(sorted(controls)) or None,
                "start_error_ns": start_error_ns(run, flow) if measuring else None,
                "window_start_ns": window and window[0],
                "window_end_ns": window and window[1],
                "goodput_bps": window and mean_goodput(run, counted, flow, window),
            }
            | _rtts(tables["tcp_info"], flow, window)
            | _limit_shares(limited, flow, window)
            | found.summary(tables, flow)
        )
    flows = pl.DataFrame(rows, infer_schema_length=None)
    numbers = (*analysis.LIMITS, *analysis.CAUSES, *(f"rtt_p{percent}_ns" for percent in RTT_PERCENTS))
    shares = pl.col(*numbers).cast(pl.Float64)  # also if none is known
    return _with_losses(flows.with_columns(shares), run, tables)


def _rtts(tcp_info: pl.DataFrame, flow: Flow, window_ns: Window | None) -> dict[str, float | None]:
    """Columns of the table of flows: percentiles of the sender's smoothed RTT in the window."""
    found: dict[str, float | None] = {f"rtt_p{percent}_ns": None for percent in RTT_PERCENTS}
    if window_ns and "srtt_us" in tcp_info.columns:
        own = tcp_info.filter(IN_MEASUREMENT).filter(flow=flow.name, side="sender")
        rtts = 1000.0 * own.filter(pl.col("t_ns").is_between(*window_ns))["srtt_us"]
        for percent in RTT_PERCENTS:
            found[f"rtt_p{percent}_ns"] = analysis.percentile(rtts, percent)
    return found


def _limit_shares(limited: pl.DataFrame, flow: Flow, window_ns: Window | None) -> dict[str, float | None]:
    """Columns of the table of flows: shares of the time that each limit held the flow; None if not known."""
    shares = analysis.limit_shares(limited.filter(flow=flow.name), window_ns) if window_ns else None
    unknown: dict[str, float | None] = dict.fromkeys((*analysis.LIMITS, *analysis.CAUSES))
    return unknown | (shares or {})


def _with_losses(flows: pl.DataFrame, run: Run, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The table of flows with retransmissions and losses of the measurement's flows, over their whole lives.

    ``retransmitted_segments`` and their share of all segments with data, ``retransmits``; ``lost_packets`` of
    UDP and their share of all datagrams, ``loss``. Null if not known, or of the other protocol.
    """
    columns: dict[str, type[pl.DataType]] = {
        **dict.fromkeys(("phase", "name"), pl.String),
        "retransmitted_segments": pl.Int64,
        "retransmits": pl.Float64,
        "lost_packets": pl.Int64,
        "loss": pl.Float64,
    }
    rows = []
    for flow in run.point.phase("measurement").flows:
        found = FOUND[flow.kind]
        again, lost = found.retransmitted(tables, flow), found.lost_datagrams(run, flow)
        rows.append(("measurement", flow.name, *again, *lost))
    of_flows = pl.DataFrame(rows, columns, orient="row")
    return flows.join(of_flows, on=["phase", "name"], how="left", maintain_order="left")


def _flows(phases: Sequence[Phase]) -> Iterator[tuple[Phase, Flow]]:
    for phase in phases:
        for flow in phase.flows:
            yield phase, flow
