"""What is known of a point's flows and queues now: their latest samples in InfluxDB, or its results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import polars as pl

from dumbbell.ingest import live
from dumbbell.ingest.influx import Influx
from dumbbell.plan import Flow, Phase
from dumbbell.run.content import dig
from dumbbell.run.directory import Execution
from dumbbell.run.record import read_json

WINDOW_NS = 120 * 10**9  # of the figure
LATELY_NS = 8 * 10**9  # before the run's last sample: a flow without samples in it is not sending
SERIES = {"name": pl.String, "unix_ns": pl.Int64, "value": pl.Float64}


@dataclass(frozen=True)
class FlowNow:
    """A flow of the plan with its latest values, None where they are not known.

    ``cwnd`` is in segments and the sum of its streams, ``rtt_ns`` their mean, ``lost`` datagrams.
    """

    asked: Flow
    control: str | None = None
    goodput_bps: float | None = None
    cwnd: int | None = None
    rtt_ns: float | None = None
    retransmissions: int | None = None
    lost: int | None = None


@dataclass(frozen=True)
class QueueNow:
    """The queue of the bottleneck in a direction: the longest of the last step, and drops over the window."""

    way: str
    device: str
    kind: str
    limit: str
    backlog_bytes: int
    packets: int
    drops: int


@dataclass(frozen=True)
class Flows:
    """Flows and queues of a point. ``series`` (bps) and ``backlogs`` (bytes) are ``[name, unix_ns, value]``.

    ``source`` says where the values come from, ``missing`` what is not known and why; ``last_ns`` is the time
    of the last sample by the hosts' clocks.
    """

    run: str
    flows: list[FlowNow]
    source: str = ""
    missing: list[str] = field(default_factory=list)
    queues: list[QueueNow] = field(default_factory=list)
    series: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SERIES))
    backlogs: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SERIES))
    last_ns: int | None = None


def unknown(execution: Execution, phase: Phase, why: str) -> Flows:
    """The planned flows of a phase, and the reason why nothing else is known of them."""
    flows = [FlowNow(flow, flow.congestion_control) for flow in phase.flows]
    return Flows(execution.id, flows, missing=[why])


def results(execution: Execution) -> list[FlowNow] | None:
    """The results of a point's flows, from ``flows.parquet``; None if it has none."""
    try:
        table = pl.read_parquet(execution.dir / "flows.parquet").filter(pl.col("phase") == "measurement")
    except (OSError, pl.exceptions.PolarsError):
        return None
    rows = {row["name"]: row for row in table.iter_rows(named=True)}
    return [
        FlowNow(
            flow,
            row.get("congestion_control_measured") or flow.congestion_control,
            goodput_bps=row.get("goodput_bps"),
            rtt_ns=row.get("rtt_p50_ns"),
            retransmissions=row.get("retransmitted_segments"),
            lost=row.get("lost_packets"),
        )
        for flow in execution.point.phase("measurement").flows
        for row in [rows.get(flow.name, {})]
    ]


def sampled(influx: Influx, execution: Execution, phase: Phase) -> Flows:
    """The latest samples of a phase's flows and of the bottleneck's queues; raises InfluxError."""
    last_ns = live.last_ns(influx, execution.id)
    if last_ns is None:
        return unknown(execution, phase, "InfluxDB has no samples of this point yet.")
    names = [flow.name for flow in phase.flows]
    goodputs = (
        live.series(influx, execution.id, last_ns - WINDOW_NS, last_ns)
        .filter(pl.col("flow").is_in(names))
        .select(name="flow", unix_ns="unix_ns", value="goodput_bps")
        .drop_nulls()
    )
    lately = (
        goodputs.filter(pl.col("unix_ns") >= last_ns - LATELY_NS).group_by("name").agg(pl.col("value").mean())
    )
    goodput = dict(lately.iter_rows())
    latest = live.flows(influx, execution.id).filter(phase=phase.phase)
    sums = latest.group_by("flow").agg(
        pl.col("congestion_control").drop_nulls().first(),
        pl.col("srtt_us").mean(),
        *live.sum_of_known("snd_cwnd", "total_retrans", "lost_packets"),
    )
    rows = {row["flow"]: row for row in sums.iter_rows(named=True)}
    flows = [
        FlowNow(
            flow,
            row.get("congestion_control") or flow.congestion_control,
            goodput.get(flow.name),
            row.get("snd_cwnd"),
            None if row.get("srtt_us") is None else 1000 * row["srtt_us"],
            row.get("total_retrans"),
            row.get("lost_packets"),
        )
        for flow in phase.flows
        for row in [rows.get(flow.name, {})]
    ]
    found = Flows(
        execution.id,
        flows,
        source="As last sampled; goodput is the mean of the last 8 s.",
        series=goodputs,
        last_ns=last_ns,
    )
    return _with_queues(found, influx, execution, phase, last_ns)


def _with_queues(found: Flows, influx: Influx, execution: Execution, phase: Phase, last_ns: int) -> Flows:
    """The same with the queues of the bottlenecks, or why they are not known."""
    path = execution.point.path
    if path is None:
        return replace(found, missing=["No path is emulated, so the bottleneck and its queue are not known."])
    queues, backlogs = [], []
    for router, name, device in _bottlenecks(execution):
        way = path.forward if name == "forward" else path.reverse
        rows = live.queue(
            influx,
            execution.id,
            phase.phase,
            last_ns - WINDOW_NS,
            last_ns,
            host=router,
            dev=device,
            kind=way.queue.kind,
        )
        if rows.is_empty():
            continue
        packets, size = way.queue.limit_packets, way.queue.limit_bytes
        backlog_bytes, qlen = rows.select("backlog_bytes", "qlen_packets").row(-1)
        limit = f"{packets} packets" if packets else f"{size} bytes" if size else "-"
        drops = int(rows["drops"].sum())
        queues.append(QueueNow(name, f"{router} {device}", way.queue.kind, limit, backlog_bytes, qlen, drops))
        backlogs.append(
            rows.select(name=pl.lit(name), unix_ns="unix_ns", value=pl.col("backlog_bytes").cast(float))
        )
    if not queues:
        return replace(found, missing=["The bottleneck's queue has no samples yet."])
    return replace(found, queues=queues, backlogs=pl.concat(backlogs))


def _bottlenecks(execution: Execution) -> Iterator[tuple[str, str, str]]:
    """Router, direction and device of each bottleneck; nothing before the routers are prepared."""
    for host, planned in execution.point.hosts.items():
        if "routers" in planned.groups:
            state = read_json(execution.dir / "raw" / host / "state.json")
            for name in ("forward", "reverse"):
                if device := dig(state, "path", "devices", name, "bottleneck"):
                    yield host, name, device
