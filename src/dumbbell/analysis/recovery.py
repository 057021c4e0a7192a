"""Recoveries of a sender from loss: when, how long, and how its window changed."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from dumbbell.analysis.connection import CA_STATES, CWR, KEY, LOSS, RECOVERY, SSTHRESH, senders
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
REDUCTIONS = {
    **dict.fromkeys(KEY, pl.String),
    "begin_ns": pl.Int64,
    "end_ns": pl.Int64,
    "kind": pl.String,
    "next_state": pl.String,
    "srtt_ns": pl.Int64,
    "prior_cwnd": pl.Int64,
    "ssthresh": pl.Int64,
    "pipe_before": pl.Int64,
    "least_pipe": pl.Int64,
    "pipe_after": pl.Int64,
    "cwnd_after": pl.Int64,
    "acks": pl.Int64,
    "delivered": pl.Int64,
    "sent": pl.Int64,
    "most_sent": pl.Int64,
    "silence_ns": pl.Int64,
}


def ca_states(tcp_info: pl.DataFrame, tcp_event: pl.DataFrame | None = None) -> pl.DataFrame:
    """Changes of each sender's state, ``[flow, stream, t_ns, ca_state, source]``.

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

    At each segment that arrived where the trace has the flow (``tcp_probe``, or the table ``recovery`` in
    its place), else at each sample. The threshold is null while it is infinite.
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


def reductions(acks: pl.DataFrame) -> pl.DataFrame:
    """Each reduction of a sender's window, by the log of its ACKs (table ``recovery``), in order of time.

    Windows and counts are in segments, and of the moment after an ACK has set the window, before anything is
    sent. A reduction lasts from the first ACK in CWR or Recovery (``kind`` names both in their order) to the
    first that is in neither, or ``end_ns``, ``next_state``, ``cwnd_after`` and ``pipe_after`` are null where
    the log ends before it. ``cwnd_after`` is of that ACK: in slow start it is more by what the ACK delivered.
    ``ssthresh`` is the last of the reduction, and ``pipe_before`` the first. ``sent`` counts segments,
    ``most_sent`` those after one ACK, and ``silence_ns`` is the longest time between ACKs after which
    something was sent, null where that was but once.
    """
    if acks.is_empty():
        return pl.DataFrame(schema=REDUCTIONS)
    reducing = pl.col("ca_state").is_in([CWR, RECOVERY])
    again = (pl.col("prr_delivered") < pl.col("prr_delivered").shift()).over(KEY)
    begins = reducing & (~reducing.shift(fill_value=False).over(KEY) | again)
    out = pl.col("prr_out").cast(pl.Int64)
    rows = senders(acks).with_columns(reducing=reducing, number=begins.cast(pl.Int64).cum_sum().over(KEY))
    rows = rows.filter(pl.col("number") > 0)
    following = rows.select(
        *KEY,
        "number",
        "reducing",
        end_ns=pl.col("t_ns"),
        next_state=pl.col("ca_state").replace_strict(CA_STATES, return_dtype=pl.String),
        cwnd_after="snd_cwnd",
        pipe_after="pipe",
    )
    # The ACK that ends a reduction may begin the next one.
    ends = pl.concat(
        [
            following.filter(~pl.col("reducing")),
            following.filter("reducing").with_columns(pl.col("number") - 1),
        ]
    )
    ends = ends.group_by(*KEY, "number", maintain_order=True).agg(
        pl.col("end_ns", "next_state", "cwnd_after", "pipe_after").sort_by("end_ns").first()
    )
    stays = rows.filter("reducing").with_columns(
        sent=(out.shift(-1) - out).over(*KEY, "number").fill_null(0).clip(lower_bound=0)
    )
    sends = stays.filter(pl.col("sent") > 0)
    gaps = sends.group_by(*KEY, "number").agg(silence_ns=pl.col("t_ns").diff().max())
    found = stays.group_by(*KEY, "number", maintain_order=True).agg(
        begin_ns=pl.col("t_ns").first(),
        kind=pl.col("ca_state").replace_strict(CA_STATES).unique(maintain_order=True).str.join(", "),
        srtt_ns=1000 * pl.col("srtt_us").first(),
        prior_cwnd=pl.col("prior_cwnd").last(),
        ssthresh=pl.col("snd_ssthresh").last(),
        pipe_before=pl.col("pipe").first(),
        least_pipe=pl.col("pipe").min(),
        acks=pl.len(),
        delivered=pl.col("delivered").sum(),
        sent=pl.col("prr_out").last(),
        most_sent=pl.col("sent").max(),
    )
    for more in (ends, gaps):
        found = found.join(more, on=[*KEY, "number"], how="left", maintain_order="left")
    return found.select(REDUCTIONS.keys()).cast(REDUCTIONS).sort(*KEY, "begin_ns")  # type: ignore[arg-type]


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


@dataclass(frozen=True)
class ReductionSummary:
    """How reductions began, ended and sent; what is at their end is of those without a timeout."""

    reductions: int
    timeouts: int
    signs: tuple[float, float, float]  # shares whose pipe began below ssthresh, at it, above it
    pipe_over: pl.Series  # pipe - ssthresh at the begin, in segments
    pipe_left: pl.Series  # pipe - ssthresh at the end
    cwnd_left: pl.Series  # cwnd - ssthresh at the end
    length_ns: pl.Series
    silence_rtts: pl.Series  # longest silence in smoothed RTTs, where it is known
    most_sent: int | None  # segments after one ACK


def summary_of_reductions(found: pl.DataFrame) -> ReductionSummary:
    """Of some rows of :func:`reductions`."""
    ended = found.filter(pl.col("next_state").is_in(["Open", "Disorder"]))
    over = found["pipe_before"] - found["ssthresh"]
    return ReductionSummary(
        reductions=found.height,
        timeouts=found.filter(next_state="Loss").height,
        signs=(_share(over < 0), _share(over == 0), _share(over > 0)),
        pipe_over=over,
        pipe_left=ended["pipe_after"] - ended["ssthresh"],
        cwnd_left=ended["cwnd_after"] - ended["ssthresh"],
        length_ns=ended["end_ns"] - ended["begin_ns"],
        silence_rtts=(found["silence_ns"] / found["srtt_ns"]).drop_nulls(),
        most_sent=found["most_sent"].max(),  # type: ignore[arg-type]
    )


def _share(true: pl.Series) -> float:
    return float(true.mean() or 0)  # type: ignore[arg-type]
