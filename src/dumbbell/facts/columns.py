"""The columns that each measurement must have. A run without them is invalid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl

from dumbbell.plan.actions import PhaseHost

Names = tuple[str, ...]
Release = tuple[int, int]


def names(text: str) -> Names:
    """The words of a text, split at white space."""
    return tuple(text.split())


@dataclass(frozen=True)
class Columns:
    """The columns that matching rows of a measurement must have.

    ``since`` lists columns that older kernels do not report, by the first kernel that reports them.
    """

    measurement: str
    always: Names
    sometimes: Names = ()  # columns that at least one row must have
    counters: Names = ()  # columns that never decrease within a series
    match: dict[str, str] = field(default_factory=dict)
    series: Names = ()  # tags that identify a series on one host
    since: dict[Release, Names] = field(default_factory=dict)
    sampled: Callable[[PhaseHost], bool] | None = None  # at which hosts it is taken; None: the flows decide
    each_second: bool = True  # one row per second; False: one row per tick
    steady: bool = True  # rows come at regular times; False: a row is written when something happens


LINK = names("""
    rx_packets tx_packets rx_bytes tx_bytes rx_errors tx_errors rx_dropped tx_dropped multicast collisions
    rx_length_errors rx_over_errors rx_crc_errors rx_frame_errors rx_fifo_errors rx_missed_errors
    tx_aborted_errors tx_carrier_errors tx_fifo_errors tx_heartbeat_errors tx_window_errors
    rx_compressed tx_compressed rx_nohandler""")
_CPU = names("""
    user_ms nice_ms system_ms idle_ms iowait_ms irq_ms softirq_ms steal_ms
    softirq_net_rx softirq_net_tx softnet_processed softnet_dropped softnet_time_squeeze""")
_QUEUE_COUNTERS = names("bytes packets drops overlimits requeues")
_QUEUE = ("backlog_bytes", "qlen_packets", *_QUEUE_COUNTERS)
MEMORY = tuple(
    f"skmem_{name}"
    for name in names("""rmem_alloc_bytes rcvbuf_bytes wmem_alloc_bytes sndbuf_bytes fwd_alloc_bytes
                          wmem_queued_bytes optmem_bytes backlog_bytes drops""")
)
# CurRwinSent is left out: kernels before 6.2 do not report it.
WEB100 = names("""
    SegsOut DataSegsOut DataOctetsOut SegsRetrans OctetsRetrans SegsIn DataSegsIn AckPktsIn ThruOctetsAcked
    ThruOctetsReceived CurMSS CurCwnd MaxCwnd PipeSize SmoothedRTT RTTVar MinRTT MaxRTT CurRTO MaxRTO
    SndLimTimeRwin SndLimTimeCwnd SndLimTimeSnd CongestionSignals CurTimeoutCount OtherReductions
    DupAcksOut DSACKDups ReorderingEvents ECNsignals CurRwinRcvd CurAppWQueue CurAppRQueue""")
_TIMED = ("unix_ns", "mono_ns")
# How each web100 variable follows from the row of tcp_info of the same connection and time.
WEB100_OF = {name: pl.col(column) for name, column in (pair.split(":") for pair in names("""
    SegsOut:segs_out DataSegsOut:data_segs_out DataOctetsOut:bytes_sent SegsRetrans:total_retrans
    OctetsRetrans:bytes_retrans SegsIn:segs_in DataSegsIn:data_segs_in ThruOctetsAcked:bytes_acked
    ThruOctetsReceived:bytes_received CurMSS:snd_mss SmoothedRTT:srtt_us RTTVar:rttvar_us MinRTT:min_rtt_us
    CurRTO:rto_us SndLimTimeRwin:rwnd_limited_us CurTimeoutCount:backoff DupAcksOut:rcv_ooopack
    DSACKDups:dsack_dups ReorderingEvents:reord_seen ECNsignals:delivered_ce CurRwinRcvd:snd_wnd
    CurAppWQueue:notsent_bytes CurAppRQueue:rqueue_bytes"""))} | {
    "AckPktsIn": pl.col("segs_in") - pl.col("data_segs_in"),
    "CurCwnd": pl.col("snd_cwnd") * pl.col("snd_mss"),
    "PipeSize": (pl.col("unacked") - pl.col("sacked") - pl.col("lost") + pl.col("retrans"))
    * pl.col("snd_mss"),
}  # fmt: skip
# Settings of the queues of an emulated path; netem's include those of a delay line.
SETTINGS = {
    "htb": (),
    "netem": names("limit_packets loss duplicate reorder corrupt rate_bps delay_ns jitter_ns"),
    "pfifo": ("limit_packets",),
    "bfifo": ("limit_bytes",),
    "codel": names("target_us limit_packets interval_us ecn"),
    "fq_codel": names("target_us limit_packets interval_us ecn"),
    "pie": names("target_us limit_packets ecn"),
    "red": names("limit_bytes ecn"),
    "cake": ("limit_bytes",),
    "police": names("rate_bps burst_ns"),
}


OF_CLASS = ("rate_bps",)  # the setting of a bottleneck's class


def rows_of(measurement: str, always: Names, **rest: object) -> Columns:
    """The columns of a measurement, with both timestamps, which every row has."""
    return Columns(measurement, (*always, *_TIMED), **rest)  # type: ignore[arg-type]


def of_hosts() -> list[Columns]:
    """The measurements that a host takes of itself."""
    return [
        rows_of(
            "sampler",
            names("ticks sampled missed achieved_interval_ns late_max_ns"),
            counters=names("ticks sampled late_max_ns"),  # a late tick is missed until it has been sampled
            sampled=lambda part: True,
        ),
        rows_of("link", LINK, counters=LINK, series=("dev",), sampled=lambda part: part.sample.link),
        rows_of(
            "snmp",
            ("total",),
            sometimes=("delta", "interval_ns"),
            sampled=lambda part: part.sample.snmp,
            steady=False,
        ),
        rows_of(
            "cpu_core",
            _CPU,
            counters=tuple(name for name in _CPU if name not in ("idle_ms", "iowait_ms")),  # proc(5)
            series=("cpu",),
            sampled=lambda part: part.sample.cpu,
        ),
        rows_of(
            "clock",
            names("synchronised frequency_ppb"),
            match={"source": "kernel"},
            sampled=lambda part: part.sample.clock,
        ),
        rows_of(
            "clock",
            names("synchronised stratum offset_ns last_offset_ns rms_offset_ns frequency_ppb skew_ppb"
                   " root_delay_ns root_dispersion_ns"),
            match={"source": "chrony"},
            sampled=lambda part: part.sample.clock,
        ),
        rows_of(
            "trace",
            ("records", "lost"),
            counters=("records", "lost"),
            sampled=lambda part: part.sample.trace,
            steady=False,
        ),
    ]  # fmt: skip


def of_queue(kind: str, *, each_second: bool = False) -> Columns:
    """The columns of a qdisc: on an emulated path (each tick), or on a host's own interface (each second)."""
    return rows_of(
        "qdisc",
        (*_QUEUE, *SETTINGS.get(kind, ())),
        counters=_QUEUE_COUNTERS,
        match={"kind": kind},
        series=("dev", "handle", "parent"),
        each_second=each_second,
    )


def of_class() -> Columns:
    """The columns of a bottleneck's class."""
    return rows_of(
        "tc_class",
        (*_QUEUE, *OF_CLASS, "lends", "borrows", "tokens", "ctokens"),
        counters=(*_QUEUE_COUNTERS, "lends", "borrows"),
        match={"kind": "htb"},
        series=("dev", "handle", "parent"),
        each_second=False,
    )
