"""Read runs from InfluxDB, during and after them, for live views. Results are in run directories."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dumbbell.ingest.influx import Influx

MEASUREMENTS = "tcp_info, udp, http_fetch"  # measurements of flows
MOST_STEPS = 300  # of a series in a figure
LEAST_STEP_NS = 10**9  # at least two samples at usual intervals

RUNS = {"run": pl.String, "begin_ns": pl.Int64, "end_ns": pl.Int64, "flows": pl.Int64}
FLOWS = {
    **dict.fromkeys(("phase", "flow", "host", "stream", "congestion_control"), pl.String),
    **dict.fromkeys(("snd_cwnd", "srtt_us", "total_retrans"), pl.Int64),
    **dict.fromkeys(("received_packets", "lost_packets", "fetches"), pl.Int64),
}
SERIES = {
    "flow": pl.String,
    "unix_ns": pl.Int64,
    **dict.fromkeys(("goodput_bps", "snd_cwnd", "srtt_us"), pl.Float64),
}
QUEUE = dict.fromkeys(("unix_ns", "backlog_bytes", "qlen_packets", "drops"), pl.Int64)


def runs(influx: Influx) -> pl.DataFrame:
    """Runs with sampled flows, the latest first: ``[run, begin_ns, end_ns, flows]``.

    Times are those of the first and the last row (CLOCK_REALTIME). Raises InfluxError like :class:`Influx`.
    """
    found = []
    for which in ("first", "last"):
        rows = influx.query(f"SELECT {which}(mono_ns) FROM {MEASUREMENTS} GROUP BY run, flow")
        schema = {"run": pl.String, "flow": pl.String, "time": pl.Int64}
        found.append(pl.DataFrame(rows, schema=schema).filter(pl.col("run") != ""))
    begins = found[0].group_by("run").agg(begin_ns=pl.col("time").min(), flows=pl.col("flow").n_unique())
    ends = found[1].group_by("run").agg(end_ns=pl.col("time").max())
    return begins.join(ends, on="run").select(RUNS.keys()).cast(RUNS).sort("end_ns", descending=True)  # type: ignore[arg-type]


def last_ns(influx: Influx, run: str) -> int | None:
    """The time of a run's last sample of a flow or a queue (CLOCK_REALTIME); None if there is none."""
    rows = influx.query(f"SELECT last(mono_ns) FROM {MEASUREMENTS}, qdisc WHERE run = $run", run=run)
    return max((row["time"] for row in rows), default=None)


def flows(influx: Influx, run: str) -> pl.DataFrame:
    """The latest values of each sending connection, UDP flow and flow of fetches of a run.

    ``[phase, flow, host, stream, congestion_control, snd_cwnd, srtt_us, total_retrans, received_packets,
    lost_packets, fetches]``, null if a value does not apply. ``host`` is the host that sampled it.
    """
    rows = influx.query(
        "SELECT last(snd_cwnd) AS snd_cwnd, last(srtt_us) AS srtt_us, last(total_retrans) AS total_retrans, "
        "last(congestion_control) AS congestion_control FROM tcp_info "
        "WHERE run = $run AND side = 'sender' AND stream != '' GROUP BY phase, flow, host, stream",
        run=run,
    )
    rows += influx.query(
        "SELECT last(received_packets) AS received_packets, last(lost_packets) AS lost_packets "
        "FROM udp WHERE run = $run AND side = 'receiver' GROUP BY phase, flow, host",
        run=run,
    )
    rows += influx.query(
        "SELECT count(completion_ns) AS fetches FROM http_fetch "
        "WHERE run = $run AND side = 'receiver' GROUP BY phase, flow, host",
        run=run,
    )
    return pl.DataFrame(rows, schema=FLOWS).sort("phase", "flow", "stream")


def series(influx: Influx, run: str, since_ns: int, until_ns: int) -> pl.DataFrame:
    """Goodput, window and smoothed RTT of a run's flows over a time (CLOCK_REALTIME).

    ``[flow, unix_ns, goodput_bps, snd_cwnd, srtt_us]`` in at most :data:`MOST_STEPS` whole steps of equal
    length, each at its begin. Goodput is growth of ``bytes_acked`` of the sender, of ``received_bytes`` of a
    receiver of datagrams, and the bytes of the fetches that began; of several streams it is the sum. Windows
    (the sum) and RTTs (the mean) are the last of a step.
    """
    step_ns, when = _whole_steps(since_ns, until_ns)
    every = f"GROUP BY time({step_ns}ns), flow, stream fill(none)"
    rows = influx.query(
        f"SELECT last(snd_cwnd) AS snd_cwnd, last(srtt_us) AS srtt_us FROM tcp_info "
        f"WHERE {when} AND side = 'sender' AND stream != '' {every}",
        run=run,
    )
    for measurement, counter, only in (
        ("tcp_info", "bytes_acked", "side = 'sender' AND stream != ''"),
        ("udp", "received_bytes", "side = 'receiver'"),
    ):
        rows += influx.query(
            f"SELECT 8 * non_negative_derivative(max({counter}), 1s) AS goodput_bps "
            f"FROM {measurement} WHERE {when} AND {only} {every}",
            run=run,
        )
    rows += influx.query(
        f"SELECT 8 * sum(received_bytes) / {step_ns / 1e9} AS goodput_bps FROM http_fetch "
        f"WHERE {when} AND side = 'receiver' {every}",
        run=run,
    )
    found = pl.DataFrame([row | {"unix_ns": row["time"]} for row in rows], schema=SERIES)
    sums = sum_of_known("goodput_bps", "snd_cwnd")
    return found.group_by("flow", "unix_ns").agg(*sums, pl.col("srtt_us").mean()).sort("flow", "unix_ns")


def sum_of_known(*names: str) -> Iterator[pl.Expr]:
    """The sum of each column's values that are known; null if none is."""
    return (pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name) for name in names)


def queue(
    influx: Influx, run: str, phase: str, since_ns: int, until_ns: int, *, host: str, dev: str, kind: str
) -> pl.DataFrame:
    """The queue of a bottleneck over a time of a phase: ``[unix_ns, backlog_bytes, qlen_packets, drops]``.

    The queue is of this kind, below the root of the device. Times are CLOCK_REALTIME, steps those of
    :func:`series`. Lengths are the greatest of a step, drops those of a step (packets).
    """
    step_ns, when = _whole_steps(since_ns, until_ns)
    rows = influx.query(
        "SELECT max(backlog_bytes) AS backlog_bytes, max(qlen_packets) AS qlen_packets, max(drops) AS drops "
        f"FROM qdisc WHERE {when} AND phase = $phase AND host = $host AND dev = $dev "
        f"AND kind = $kind AND parent != 'root' GROUP BY time({step_ns}ns) fill(none)",
        **{"run": run, "phase": phase, "host": host, "dev": dev, "kind": kind},
    )
    found = pl.DataFrame([row | {"unix_ns": row["time"]} for row in rows], schema=QUEUE).sort("unix_ns")
    return found.with_columns(pl.col("drops").diff().fill_null(0).clip(0))


def _whole_steps(since_ns: int, until_ns: int) -> tuple[int, str]:
    """The length of steps, and the condition of their rows, without the last step, which is incomplete."""
    step_ns = max(LEAST_STEP_NS, -(-(until_ns - since_ns) // MOST_STEPS))
    return step_ns, f"run = $run AND time >= {since_ns} AND time < {until_ns - until_ns % step_ns}"
