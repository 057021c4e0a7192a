"""Recoveries of a sender from loss: when, how long, and what became of its window."""

from __future__ import annotations

import polars as pl

from dumbbell.analysis.connection import CA_STATES, KEY, LOSS, RECOVERY, SSTHRESH, senders
from dumbbell.analysis.rates import unwrap_u32

LOSING = [RECOVERY, LOSS]
RECOVERIES = {
    **dict.fromkeys(KEY, pl.String),
    "begin_ns": pl.Int64,
    "end_ns": pl.Int64,
    "kind": pl.String,
    "cwnd_before": pl.Int64,
    "cwnd_after": pl.Int64,
    "ssthresh_after": pl.Int64,
    "retransmits": pl.Int64,
    "source": pl.String,
}


def ca_states(tcp_info: pl.DataFrame, tcp_event: pl.DataFrame | None = None) -> pl.DataFrame:
    """Since when each sender was in which state, ``[flow, stream, t_ns, ca_state, source]``.

    Of the trace (``source`` is ``trace``) where it has any state of the flow, else of samples (``samples``),
    which show a state up to an interval late and miss what lies between two of them.
    """
    columns = [*KEY, "t_ns", "ca_state"]
    sampled = senders(tcp_info).select(*columns, source=pl.lit("samples"))
    if tcp_event is None:
        return sampled
    traced = senders(tcp_event).filter(pl.col("event") == "ca_state")
    untraced = sampled.join(traced.select(KEY).unique(), on=KEY, how="anti")
    found = pl.concat([traced.select(*columns, source=pl.lit("trace")), untraced], how="vertical_relaxed")
    return found.sort(*KEY, "t_ns")


def windows(tcp_info: pl.DataFrame, tcp_probe: pl.DataFrame | None = None) -> pl.DataFrame:
    """Window and threshold of each sender, in segments: ``[flow, stream, t_ns, snd_cwnd, snd_ssthresh]``.

    At each segment that arrived where the trace has the flow, else at each sample. The threshold is null
    while it is infinite.
    """
    columns = [*KEY, "t_ns", "snd_cwnd", "snd_ssthresh"]
    rows = senders(tcp_info).select(columns)
    if tcp_probe is not None and "snd_ssthresh" in tcp_probe.columns:
        traced = senders(tcp_probe).select(columns)
        untraced = rows.join(traced.select(KEY).unique(), on=KEY, how="anti")
        rows = pl.concat([traced, untraced], how="vertical_relaxed").sort(*KEY, "t_ns")
    return rows.with_columns(snd_ssthresh=SSTHRESH)


def recoveries(
    tcp_info: pl.DataFrame, tcp_event: pl.DataFrame | None = None, tcp_probe: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Each stay of each sender in Recovery or Loss, in order of time.

    ``[flow, stream, begin_ns, end_ns, kind, cwnd_before, cwnd_after, ssthresh_after, retransmits, source]``.
    ``end_ns`` is null where the samples or the trace end before it. ``kind`` names the states in their order,
    as ``Recovery, Loss``. Windows, in segments, are the last before the begin and the first from the end on,
    of :func:`windows`. ``retransmits`` are those that the trace has from begin to end, or by which
    ``total_retrans`` grew between the samples around it. ``source`` is that of :func:`ca_states`.
    """
    states = ca_states(tcp_info, tcp_event)
    if states.is_empty():
        return pl.DataFrame(schema=RECOVERIES)
    losing = pl.col("ca_state").is_in(LOSING)
    begins = losing & ~losing.shift(fill_value=False).over(KEY)
    marked = states.with_columns(losing=losing, stay=begins.cast(pl.Int64).cum_sum().over(KEY))
    marked = marked.filter(pl.col("stay") > 0)
    stays = (
        marked.filter("losing")
        .group_by(*KEY, "stay", maintain_order=True)
        .agg(
            begin_ns=pl.col("t_ns").first(),
            kind=pl.col("ca_state").replace_strict(CA_STATES).unique(maintain_order=True).str.join(", "),
            source=pl.col("source").first(),
        )
    )
    ends = marked.filter(~pl.col("losing")).group_by(*KEY, "stay").agg(end_ns=pl.col("t_ns").min())
    found = stays.join(ends, on=[*KEY, "stay"], how="left", maintain_order="left")
    at = windows(tcp_info, tcp_probe)
    before = at.select(*KEY, "t_ns", cwnd_before="snd_cwnd")
    after = at.select(*KEY, "t_ns", cwnd_after="snd_cwnd", ssthresh_after="snd_ssthresh")
    found = _at(found, "begin_ns", before, strategy="backward", exact=False)
    found = _at(found, "end_ns", after, strategy="forward")
    found = _retransmits(found, tcp_info, tcp_event)
    return found.select(RECOVERIES.keys()).cast(RECOVERIES).sort(*KEY, "begin_ns")  # type: ignore[arg-type]


def _retransmits(stays: pl.DataFrame, tcp_info: pl.DataFrame, tcp_event: pl.DataFrame | None) -> pl.DataFrame:
    total = unwrap_u32(pl.col("total_retrans")).over(KEY)
    sampled = senders(tcp_info).select(*KEY, "t_ns", total=total)
    by_samples = stays.filter(pl.col("source") == "samples")
    parts = [_grown(by_samples, sampled, until="forward")]
    if tcp_event is not None:
        again = senders(tcp_event).filter(pl.col("event") == "retransmit")
        counted = again.select(*KEY, "t_ns", total=pl.int_range(1, pl.len() + 1).over(KEY))
        parts.append(_grown(stays.filter(pl.col("source") == "trace"), counted, until="backward"))
    return pl.concat(parts, how="vertical_relaxed")


def _grown(stays: pl.DataFrame, counter: pl.DataFrame, *, until: str) -> pl.DataFrame:
    """``retransmits`` of each stay: growth from before its begin to its end, or to the last of a counter."""
    last = counter.group_by(KEY).agg(last_total=pl.col("total").last())
    found = _at(stays, "begin_ns", counter.rename({"total": "first"}), strategy="backward", exact=False)
    found = _at(found, "end_ns", counter.rename({"total": "at_end"}), strategy=until)
    found = found.join(last, on=KEY, how="left")
    at_end = pl.when(pl.col("end_ns").is_null()).then("last_total").otherwise("at_end")
    grown = at_end.fill_null(0 if until == "backward" else pl.col("last_total")) - pl.col("first").fill_null(
        0
    )
    return found.with_columns(retransmits=grown).drop("first", "at_end", "last_total")


def _at(
    stays: pl.DataFrame, time: str, series: pl.DataFrame, *, strategy: str, exact: bool = True
) -> pl.DataFrame:
    """Columns of a series at a time of each stay; null where that is null."""
    known = stays.filter(pl.col(time).is_not_null()).sort(time)
    joined = known.join_asof(
        series.sort("t_ns"),
        left_on=time,
        right_on="t_ns",
        by=KEY,
        strategy=strategy,  # type: ignore[arg-type]
        allow_exact_matches=exact,
        check_sortedness=False,
    ).drop("t_ns")
    return pl.concat([joined, stays.filter(pl.col(time).is_null())], how="diagonal_relaxed")
