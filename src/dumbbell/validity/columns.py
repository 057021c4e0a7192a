"""What every row of each measurement says, and what some do: without it a run is not judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl

from dumbbell.plan import Flow
from dumbbell.plan.actions import PhaseHost
from dumbbell.plan.document import CHOSEN_PORTS

Names = tuple[str, ...]
Release = tuple[int, int]


def _names(text: str) -> Names:
    return tuple(text.split())


@dataclass(frozen=True)
class Columns:
    """Of the rows of a measurement that match; ``since`` is the kernel that has some first."""

    measurement: str
    always: Names
    sometimes: Names = ()  # in one row at the least
    counters: Names = ()  # of those, what only grows within a series
    match: dict[str, str] = field(default_factory=dict)
    series: Names = ()  # tags that tell series of a host apart
    since: dict[Release, Names] = field(default_factory=dict)
    sampled: Callable[[PhaseHost], bool] | None = None  # at which hosts it is; None: by the flows
    each_second: bool = True  # else at each tick
    steady: bool = True  # else rows come when there is something to tell


LINK = _names("""
    rx_packets tx_packets rx_bytes tx_bytes rx_errors tx_errors rx_dropped tx_dropped multicast collisions
    rx_length_errors rx_over_errors rx_crc_errors rx_frame_errors rx_fifo_errors rx_missed_errors
    tx_aborted_errors tx_carrier_errors tx_fifo_errors tx_heartbeat_errors tx_window_errors
    rx_compressed tx_compressed rx_nohandler""")
_CPU = _names("""
    user_ms nice_ms system_ms idle_ms iowait_ms irq_ms softirq_ms steal_ms
    softirq_net_rx softirq_net_tx softnet_processed softnet_dropped softnet_time_squeeze""")
_QUEUE_COUNTERS = _names("bytes packets drops overlimits requeues")
_QUEUE = ("backlog_bytes", "qlen_packets", *_QUEUE_COUNTERS)
_INFO_COUNTERS = _names("""
    total_retrans bytes_acked bytes_received segs_out segs_in data_segs_in data_segs_out
    busy_time_us rwnd_limited_us sndbuf_limited_us delivered delivered_ce
    bytes_sent bytes_retrans dsack_dups reord_seen rcv_ooopack""")
_INFO = _names("""
    state ca_state retransmits probes backoff options snd_wscale rcv_wscale delivery_rate_app_limited
    fastopen_client_fail rto_us ato_us snd_mss rcv_mss unacked sacked lost retrans
    last_data_sent_ms last_data_recv_ms last_ack_recv_ms pmtu rcv_ssthresh srtt_us rttvar_us snd_ssthresh
    snd_cwnd advmss reordering rcv_rtt_us rcv_space notsent_bytes delivery_rate_Bps snd_wnd""")
_INFO_SINCE: dict[Release, Names] = {
    (6, 2): _names("rcv_wnd rehash"),
    (6, 7): _names("total_rto total_rto_recoveries total_rto_time_ms"),
    (6, 18): _names("""received_ce delivered_e1_bytes delivered_e0_bytes delivered_ce_bytes
                       received_e1_bytes received_e0_bytes received_ce_bytes"""),
}
_SOCKET = _names("rqueue_bytes wqueue_bytes timer timer_expires_ms cookie")
MEMORY = tuple(
    f"skmem_{name}"
    for name in _names("""rmem_alloc_bytes rcvbuf_bytes wmem_alloc_bytes sndbuf_bytes fwd_alloc_bytes
                          wmem_queued_bytes optmem_bytes backlog_bytes drops""")
)
_ATOU_COUNTERS = _names("""
    busy_time_us segs_in data_segs_out bytes_sent bytes_acked bytes_retrans delivered total_retrans total_rto
    dup_acks_in signals_fast_retransmit bad_acks_in enobufs rtt_samples""")
_ATOU = _names("ca_state snd_cwnd snd_mss snd_wnd unacked backoff rto_us")
_ATOU_RTTS = _names("srtt_us rttvar_us min_rtt_us rtt_max_us rtt_last_us rtt_sum_us")
_SENT = _names("asked_packets sent_packets sent_bytes skipped_packets dropped_packets")
_RECEIVED = _names("""
    received_packets received_bytes lost_packets reordered_packets duplicate_packets stale_packets
    socket_drops""")
# Not CurRwinSent, which kernels before 6.2 do not tell.
WEB100 = _names("""
    SegsOut DataSegsOut DataOctetsOut SegsRetrans OctetsRetrans SegsIn DataSegsIn AckPktsIn ThruOctetsAcked
    ThruOctetsReceived CurMSS CurCwnd MaxCwnd PipeSize SmoothedRTT RTTVar MinRTT MaxRTT CurRTO MaxRTO
    SndLimTimeRwin SndLimTimeCwnd SndLimTimeSnd CongestionSignals CurTimeoutCount OtherReductions
    DupAcksOut DSACKDups ReorderingEvents ECNsignals CurRwinRcvd CurAppWQueue CurAppRQueue""")
_TIMED = ("unix_ns", "mono_ns")
# What variables of web100 are made of, in the connection's row of tcp_info of the same time.
WEB100_OF = {name: pl.col(column) for name, column in (pair.split(":") for pair in _names("""
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
# Settings of queues that a path may be made of; of netem also those of a delay line.
SETTINGS = {
    "htb": (),
    "netem": _names("limit_packets loss duplicate reorder corrupt rate_bps delay_ns jitter_ns"),
    "pfifo": ("limit_packets",),
    "bfifo": ("limit_bytes",),
    "codel": _names("target_us limit_packets interval_us ecn"),
    "fq_codel": _names("target_us limit_packets interval_us ecn"),
    "pie": _names("target_us limit_packets ecn"),
    "red": _names("limit_bytes ecn"),
    "cake": ("limit_bytes",),
}


OF_CLASS = ("rate_bps",)  # a setting of the class of a bottleneck


def _rows(measurement: str, always: Names, **rest: object) -> Columns:
    return Columns(measurement, (*always, *_TIMED), **rest)  # type: ignore[arg-type]


def of_hosts() -> list[Columns]:
    """What a host samples of itself."""
    return [
        _rows(
            "sampler",
            _names("ticks sampled missed achieved_interval_ns late_max_ns"),
            counters=_names("ticks sampled late_max_ns"),  # a tick that is late is missed until it is sampled
            sampled=lambda part: True,
        ),
        _rows("link", LINK, counters=LINK, series=("dev",), sampled=lambda part: part.sample.link),
        _rows(
            "snmp",
            ("total",),
            sometimes=("delta", "interval_ns"),
            sampled=lambda part: part.sample.snmp,
            steady=False,
        ),
        _rows(
            "cpu_core",
            _CPU,
            counters=tuple(name for name in _CPU if name not in ("idle_ms", "iowait_ms")),  # proc(5)
            series=("cpu",),
            sampled=lambda part: part.sample.cpu,
        ),
        _rows(
            "clock",
            _names("synchronised frequency_ppb"),
            match={"source": "kernel"},
            sampled=lambda part: part.sample.clock,
        ),
        _rows(
            "clock",
            _names("synchronised stratum offset_ns last_offset_ns rms_offset_ns frequency_ppb skew_ppb"
                   " root_delay_ns root_dispersion_ns"),
            match={"source": "chrony"},
            sampled=lambda part: part.sample.clock,
        ),
        _rows(
            "trace",
            ("records", "lost"),
            counters=("records", "lost"),
            sampled=lambda part: part.sample.trace,
            steady=False,
        ),
    ]  # fmt: skip


def of_queue(kind: str, *, each_second: bool = False) -> Columns:
    """A qdisc of an emulated path, which is sampled at each tick, or of a host's own interface."""
    return _rows(
        "qdisc",
        (*_QUEUE, *SETTINGS.get(kind, ())),
        counters=_QUEUE_COUNTERS,
        match={"kind": kind},
        series=("dev", "handle", "parent"),
        each_second=each_second,
    )


def of_class() -> Columns:
    """The class of a bottleneck."""
    return _rows(
        "tc_class",
        (*_QUEUE, *OF_CLASS, "lends", "borrows", "tokens", "ctokens"),
        counters=(*_QUEUE_COUNTERS, "lends", "borrows"),
        match={"kind": "htb"},
        series=("dev", "handle", "parent"),
        each_second=False,
    )


def of_flow(flow: Flow, host: str, part: PhaseHost) -> list[Columns]:
    """What a host tells of its ends of a flow."""
    found = []
    for side, end in (("sender", flow.src_host), ("receiver", flow.dst_host)):
        match = {"flow": flow.name, "side": side}
        if end != host:
            continue
        if flow.kind == "udp":
            sends = side == "sender"
            found.append(
                _rows(
                    "udp",
                    (*_SENT, "late_max_ns") if sends else (*_RECEIVED, "delay_packets"),
                    sometimes=() if sends else _names("delay_min_ns delay_mean_ns delay_max_ns"),
                    # what comes late was counted as lost
                    counters=_SENT if sends else tuple(n for n in _RECEIVED if n != "lost_packets"),
                    match=match,
                    series=("flow", "side"),
                    steady=False,
                )
            )
        if flow.kind == "http":
            own = ("fetch", "sent_bytes") if side == "sender" else ("fetch", "received_bytes")
            times = () if side == "sender" else _names("connect_ns first_byte_ns completion_ns")
            found.append(
                _rows(
                    "http_fetch",
                    own,
                    sometimes=(*times, "congestion_control", "cookie"),
                    match=match,
                    series=("flow", "side"),
                    steady=False,
                )
            )
        if flow.name not in part.sample.tcp:
            continue
        found += _of_connections(flow, match, part)
    return found


def _of_connections(flow: Flow, match: dict[str, str], part: PhaseHost) -> list[Columns]:
    if flow.kind == "atou":
        own = (*_ATOU, *_ATOU_COUNTERS, "congestion_control")
        return [
            _rows("tcp_info", own, sometimes=(*_ATOU_RTTS, "final"), counters=_ATOU_COUNTERS, match=match,
                  series=("flow", "side", "stream"), steady=False)
        ]  # fmt: skip
    own = (*_INFO, *_INFO_COUNTERS, *(_SOCKET if flow.kind != "http" else ("cookie",)))
    many = _names("pacing_rate_Bps min_rtt_us congestion_control")
    many += ("max_pacing_rate_Bps",) if flow.pacing_bps is not None and match["side"] == "sender" else ()
    ended = () if flow.kind == "http" else ("final", *MEMORY)
    # Of connections whose ports are not known in advance, a later one may have the number of one before.
    numbered = "cookie" if flow.kind in CHOSEN_PORTS else "stream"
    series = ("flow", "side", numbered)
    found = [
        _rows("tcp_info", own, sometimes=(*many, *ended), counters=_INFO_COUNTERS, match=match, series=series,
              since=_INFO_SINCE, steady=False)
    ]  # fmt: skip
    if flow.kind == "iperf3_tcp":
        found.append(_rows("web100", (), sometimes=WEB100, match=match, steady=False))
        if part.sample.trace:
            own = _names("data_bytes snd_nxt snd_una snd_cwnd snd_ssthresh snd_wnd srtt_us rcv_wnd")
            found.append(_rows("tcp_probe", own, match=match, steady=False))
    return found
