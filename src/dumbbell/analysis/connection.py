"""One connection, from the samples of its sender's kernel.

Every table is by ``flow, stream`` and in order of ``t_ns``; ``dt_ns`` is the time since the sample before.
"""

from __future__ import annotations

import polars as pl

from dumbbell.analysis.rates import grown_u32

KEY = ["flow", "stream"]
CA_STATES = {0: "Open", 1: "Disorder", 2: "CWR", 3: "Recovery", 4: "Loss"}
CWR, RECOVERY, LOSS = 2, 3, 4
INFINITE_SSTHRESH = 2**31 - 1
# From TCP_INFO, in segments: the slow-start threshold, null while it is infinite, and packets in flight.
SSTHRESH = pl.when(pl.col("snd_ssthresh") < INFINITE_SSTHRESH).then(pl.col("snd_ssthresh"))
PIPE = pl.col("unacked") - pl.col("sacked") - pl.col("lost") + pl.col("retrans")

# Causes of a window reduction, by web100's names, and the counters of eBPF for them.
SIGNALS = {
    "SendStall": "signals_send_stall",
    "FastRetran": "fast_retransmits",
    "Timeouts": "signals_timeout",
    "CongestionSignals": "congestion_signals",
    "DupAcksIn": "dup_acks_in",
}

# Columns of TCP_INFO that the functions here use, if present.
SAMPLED_FROM = (
    *("flow", "stream", "side", "t_ns", "ca_state", "snd_mss", "snd_cwnd", "snd_ssthresh", "unacked"),
    *("sacked", "lost", "retrans", "srtt_us", "min_rtt_us", "rtt_last_us", "pacing_rate_Bps"),
    *("delivery_rate_Bps", "bytes_sent", "bytes_acked", "data_segs_out", "total_retrans"),
    *("total_rto_recoveries", "rcv_ooopack", *SIGNALS.values()),
)


def senders(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of the senders of connections with a stream, in order."""
    return rows.filter(pl.col("side") == "sender", pl.col("stream").is_not_null()).sort(*KEY, "t_ns")


def samples(tcp_info: pl.DataFrame) -> pl.DataFrame:
    """State of the sender at each sample, and its activity since the previous one.

    ``cwnd_bytes, ssthresh_bytes`` (null while infinite)``, pipe_bytes, srtt_ns, min_rtt_ns, pacing_bps,
    delivery_bps, ca_state``, and of the time ``dt_ns`` since the sample before, null at the first:
    ``throughput_bps`` (with retransmissions), ``goodput_bps`` (acknowledged), ``sent_packets,
    retransmitted_packets``. ``latest_rtt_ns`` is there where eBPF counted.
    """
    mss = pl.col("snd_mss")
    latest = {"latest_rtt_ns": 1000 * pl.col("rtt_last_us")} if "rtt_last_us" in tcp_info.columns else {}
    dt = pl.col("t_ns").diff()
    return senders(tcp_info).select(
        *KEY,
        "t_ns",
        "ca_state",
        dt_ns=dt.over(KEY),
        cwnd_bytes=pl.col("snd_cwnd") * mss,
        ssthresh_bytes=SSTHRESH * mss,
        pipe_bytes=PIPE * mss,
        srtt_ns=1000 * pl.col("srtt_us"),
        min_rtt_ns=1000 * pl.col("min_rtt_us"),
        pacing_bps=8 * pl.col("pacing_rate_Bps"),
        delivery_bps=8 * pl.col("delivery_rate_Bps"),
        throughput_bps=(8e9 * pl.col("bytes_sent").diff() / dt).over(KEY),
        goodput_bps=(8e9 * pl.col("bytes_acked").diff() / dt).over(KEY),
        sent_packets=grown_u32(pl.col("data_segs_out")).over(KEY),
        retransmitted_packets=grown_u32(pl.col("total_retrans")).over(KEY),
        **latest,
    )


def state_shares(tcp_info: pl.DataFrame) -> pl.DataFrame:
    """Share of time in each congestion state, ``[flow, stream, state, share]``, by each sender's samples."""
    rows = samples(tcp_info).with_columns(
        state=pl.col("ca_state").replace_strict(CA_STATES, default=None),
        lasted_ns=pl.col("dt_ns").shift(-1).over(KEY).fill_null(0),  # a state counts until the next sample
    )
    by_state = rows.group_by(*KEY, "state").agg(pl.col("lasted_ns").sum())
    share = pl.col("lasted_ns") / pl.col("lasted_ns").sum().over(KEY)
    return by_state.select(*KEY, "state", share=share).sort(*KEY, "state")


def signals(tcp_info: pl.DataFrame, tcp_event: pl.DataFrame | None = None) -> pl.DataFrame:
    """Causes of window reductions of each sender since the previous sample, by web100's names.

    ``[flow, stream, t_ns, dt_ns, SendStall, FastRetran, Timeouts, CongestionSignals, DupAcksIn,
    SlowStart, OtherReductions, source]``. ``source`` is ``ebpf``, ``trace`` or ``samples``, the best
    there was: with the last, changes of state between two samples are missed. Of the trace CWR is a
    stall, which is wrong with ECN. DupAcksIn are without eBPF what the receiver had out of order, so that
    each asked for one: approximate, and null where it was not sampled. SlowStart is what the window grew
    by while below ssthresh, OtherReductions counts falls of the window while the state stayed Open: both
    by samples, so approximate.
    """
    sending = senders(tcp_info)
    growth = pl.col("snd_cwnd").diff()
    below = (pl.col("snd_cwnd") < pl.col("snd_ssthresh")).shift(1)
    stayed = (pl.col("ca_state") == 0) & (pl.col("ca_state").shift(1) == 0)
    base = sending.select(
        *KEY,
        "t_ns",
        dt_ns=pl.col("t_ns").diff().over(KEY),
        SlowStart=(below.cast(pl.Int64) * growth.clip(0)).over(KEY),
        OtherReductions=(stayed & (growth < 0)).cast(pl.Int64).over(KEY),
    )
    if "congestion_signals" in sending.columns:
        source = "ebpf"
        counted = sending.select(
            *KEY, "t_ns", *(_since(field).alias(name) for name, field in SIGNALS.items())
        )
    else:
        traced = None if tcp_event is None else tcp_event.filter(side="sender", event="ca_state")
        source = "samples" if traced is None or traced.is_empty() else "trace"
        counted = _entries(base, sending if source == "samples" or traced is None else traced)
        counted = counted.join(_out_of_order(base, tcp_info), on=[*KEY, "t_ns"], how="left")
    if source != "ebpf" and "total_rto_recoveries" in sending.columns:
        timeouts = sending.select(*KEY, "t_ns", Timeouts=_since("total_rto_recoveries"))
        counted = counted.drop("Timeouts").join(timeouts, on=[*KEY, "t_ns"], how="left")
    names = [*SIGNALS, "SlowStart", "OtherReductions"]
    joined = base.join(counted, on=[*KEY, "t_ns"], how="left", maintain_order="left")
    return joined.select(*KEY, "t_ns", "dt_ns", *names, source=pl.lit(source))


def _since(counter: str) -> pl.Expr:
    """Growth of a counter since the sample before; at the first sample, since the connection began."""
    return pl.col(counter) - pl.col(counter).shift(fill_value=0).over(KEY)


def _entries(base: pl.DataFrame, states: pl.DataFrame) -> pl.DataFrame:
    """Entries into states that reduce the window, counted at the next row of ``base``."""
    now, before = pl.col("ca_state"), pl.col("ca_state").shift(1, fill_value=0).over(KEY)
    entered = {
        name: (now == state) & (before != state)
        for name, state in (("SendStall", CWR), ("FastRetran", RECOVERY), ("Timeouts", LOSS))
    }
    # Recovery after CWR keeps the window that CWR has reduced.
    signal = entered["SendStall"] | (entered["FastRetran"] & (before != CWR)) | entered["Timeouts"]
    entries = states.sort(*KEY, "t_ns").select(*KEY, "t_ns", **entered, CongestionSignals=signal)
    at = base.select(*KEY, "t_ns", sample_ns=pl.col("t_ns")).sort("t_ns")
    binned = entries.sort("t_ns").join_asof(at, on="t_ns", by=KEY, strategy="forward", check_sortedness=False)
    names = [*entered, "CongestionSignals"]
    counted = binned.group_by(*KEY, "sample_ns").agg(pl.col(names).cast(pl.Int64).sum())
    found = base.select(*KEY, "t_ns").join(
        counted, left_on=[*KEY, "t_ns"], right_on=[*KEY, "sample_ns"], how="left", maintain_order="left"
    )
    return found.with_columns(pl.col(names).fill_null(0))


def _out_of_order(base: pl.DataFrame, tcp_info: pl.DataFrame) -> pl.DataFrame:
    """Packets that the receiver got out of order, at its last sample before each row of ``base``."""
    at = base.select(*KEY, "t_ns").sort("t_ns")
    receiving = tcp_info.filter(side="receiver").sort("t_ns")
    if receiving.is_empty() or "rcv_ooopack" not in receiving.columns:
        return at.with_columns(DupAcksIn=pl.lit(None, pl.Int64))
    totals = receiving.select(*KEY, "t_ns", DupAcksIn=pl.col("rcv_ooopack").cast(pl.Int64))
    found = at.join_asof(totals, on="t_ns", by=KEY, check_sortedness=False)
    return found.with_columns(grown_u32(pl.col("DupAcksIn")).fill_null(0).over(KEY))


def budget(counted: pl.DataFrame) -> pl.DataFrame:
    """Whether each connection's signals are explained, from :func:`signals`.

    ``[flow, stream, SendStall, FastRetran, Timeouts, CongestionSignals, unexplained]``, totals:
    ``unexplained`` is what the three causes leave of the sum. A recovery that begins in CWR is a cause
    without a signal of its own and makes it negative.
    """
    causes = ["SendStall", "FastRetran", "Timeouts"]
    totals = counted.group_by(KEY, maintain_order=True).agg(pl.col(*causes, "CongestionSignals").sum())
    return totals.with_columns(unexplained=pl.col("CongestionSignals") - pl.sum_horizontal(causes))
