"""Checks, columns and tables that several kinds share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from dumbbell import analysis
from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, close, fact, same
from dumbbell.facts.columns import WEB100, Columns, Release, names, rows_of
from dumbbell.kinds.found.base import Counted, Found, Key, Lost, Tables, share
from dumbbell.plan import Flow
from dumbbell.plan.actions import PhaseHost
from dumbbell.run.content import IN_MEASUREMENT, Run, start_error_ns
from dumbbell.run.of_flows import paced_bps, pacing_bps, unsampled_share, why_no_start
from dumbbell.run.of_path import TIMESTAMP_NS, first_min_rtts
from dumbbell.run.record import read_jsonl
from dumbbell.units import human

FOREIGN = 1e-3  # the largest share of foreign data at a server that does not affect the flow's numbers
LATE_NS = 60_000_000_000  # a flow's last datagram has arrived this long after its end


def of_measurement(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of the phase in which the flows run."""
    return table.filter(pl.col("phase") == "measurement")


# --- checks ---------------------------------------------------------------------------------------


def began(of: Asked, flow: Flow) -> Iterator[Check]:
    """The first data left at the planned start."""
    yield close(
        "start",
        flow.name,
        0,
        start_error_ns(of.run, flow),
        tolerance=of.point.validity.start_error_ns,
        unit="ns",
        what="start error",
        missing=why_no_start(of.run, flow),
    )


def path_met(of: Asked, flow: Flow, tcp_info: pl.DataFrame) -> Iterator[Check]:
    """Connections made ahead of the start saw no lower RTT than the path has at the start."""
    path = of.point.path
    if path is None:
        return
    first = first_min_rtts(tcp_info, flow)
    requested, measured, tolerance = None, None, None
    reason = "the least RTT of its connections is not known: no sample has it after the start"
    if not first.is_empty():
        until_ns, measured = first.select(pl.col("t_ns").max(), 1000 * pl.col("min_rtt_us").min()).row(0)
        requested = path.least_rtt_ns(flow.start_ns, until_ns) + 1000 * (flow.delay_us or 0)
        tolerance = TIMESTAMP_NS + of.point.validity.rtt_tolerance * requested
        reason = ""
        if measured < requested - tolerance:
            reason = f"it met an RTT of {human(measured, 'ns')} before its start, and its path has"
            reason += f" {human(requested, 'ns')}: it was connected over another"
    yield fact(
        "path met",
        flow.name,
        requested,
        measured,
        tolerance=tolerance,
        unit="ns",
        ok=not reason,
        reason=reason,
    )


def congestion_control(flow: Flow, controls: set[str]) -> Iterator[Check]:
    """The sender had the requested congestion control."""
    found = ", ".join(sorted(controls)) or None
    yield same("congestion control", flow.name, flow.congestion_control, found, what="congestion control")


def connections(of: Asked, flow: Flow, side: str, rows: pl.DataFrame) -> Iterator[Check]:
    """Every stream was sampled at this end."""
    streams = rows["stream"].n_unique()
    reason = "" if streams == flow.streams else f"{streams} of {flow.streams} connections sampled"
    yield fact(
        "connections sampled", f"{flow.name} {side}", flow.streams, streams, ok=not reason, reason=reason
    )


def sampled(of: Asked, flow: Flow, side: str, rows: pl.DataFrame, end_ns: int) -> Iterator[Check]:
    """An end of a flow was sampled from its planned start on, without long gaps."""
    yield close(
        "samples missed",
        f"{flow.name} {side}",
        0,
        unsampled_share(rows, (flow.start_ns, end_ns), of.measurement.sampling_interval_ns),
        tolerance=of.point.validity.missed_samples,
        unit="share",
        what="share of its time in which it was not sampled",
        missing="there are no samples of it",
    )


def pacing(of: Asked, flow: Flow) -> Iterator[Check]:
    """The kernel paced each socket at the requested rate, in whole bytes per second."""
    if (asked_bps := flow.pacing_bps) is None:
        return
    rows = of_measurement(of.tables["tcp_info"]).filter(flow=flow.name, side="sender")
    found, missing = pacing_bps(rows, asked_bps)
    yield close(
        "pacing", flow.name, asked_bps, found, tolerance=7, unit="bps", what="pacing", missing=missing
    )
    most = asked_bps * (1 + of.point.validity.rate_tolerance)
    rate, reason = paced_bps(rows, flow.start_ns - of.point.validity.start_error_ns), ""
    if rate is None:
        reason = "rate at which it was paced not known: the kernel does not tell what was sent"
    elif rate > most:
        reason = f"rate at which it was paced is {human(rate, 'bps')}, asked at most {human(most, 'bps')}"
    yield fact("paced rate", flow.name, most, rate, unit="bps", ok=not reason, reason=reason)


def time_sent(of: Asked, flow: Flow, sent_ns: int | None, missing: str) -> Iterator[Check]:
    """The sender wrote until the planned end."""
    reason = ""
    if sent_ns is None:
        reason = f"time for which it sent not known: {missing}"
    elif sent_ns < flow.duration_ns - of.point.validity.start_error_ns:
        least = human(flow.duration_ns, "ns")
        reason = f"time for which it sent is {human(sent_ns, 'ns')}, asked at least {least}"
    yield fact("time sent", flow.name, flow.duration_ns, sent_ns, unit="ns", ok=not reason, reason=reason)


def rate_sent(of: Asked, flow: Flow, found_bps: float | None, missing: str) -> Iterator[Check]:
    """The rate of datagrams is the planned one, within one datagram."""
    asked_bps = flow.mean_rate_bps or 0
    one_bps = 8e9 * (flow.payload_bytes or 0) / flow.duration_ns
    yield close(
        "rate sent",
        flow.name,
        asked_bps,
        found_bps,
        tolerance=max(of.point.validity.rate_tolerance * asked_bps, one_bps),
        unit="bps",
        what="rate sent",
        missing=missing,
    )


# --- columns --------------------------------------------------------------------------------------

_INFO_COUNTERS = names("""
    total_retrans bytes_acked bytes_received segs_out segs_in data_segs_in data_segs_out
    busy_time_us rwnd_limited_us sndbuf_limited_us delivered delivered_ce
    bytes_sent bytes_retrans dsack_dups reord_seen rcv_ooopack""")
_INFO = names("""
    state ca_state retransmits probes backoff options snd_wscale rcv_wscale delivery_rate_app_limited
    fastopen_client_fail rto_us ato_us snd_mss rcv_mss unacked sacked lost retrans
    last_data_sent_ms last_data_recv_ms last_ack_recv_ms pmtu rcv_ssthresh srtt_us rttvar_us snd_ssthresh
    snd_cwnd advmss reordering rcv_rtt_us rcv_space notsent_bytes delivery_rate_Bps snd_wnd""")
_INFO_SINCE: dict[Release, tuple[str, ...]] = {
    (6, 2): names("rcv_wnd rehash"),
    (6, 7): names("total_rto total_rto_recoveries total_rto_time_ms"),
    (6, 18): names("""received_ce delivered_e1_bytes delivered_e0_bytes delivered_ce_bytes
                       received_e1_bytes received_e0_bytes received_ce_bytes"""),
}
_SOCKET = names("rqueue_bytes wqueue_bytes timer timer_expires_ms cookie")
MEMORY = tuple(
    f"skmem_{name}"
    for name in names("""rmem_alloc_bytes rcvbuf_bytes wmem_alloc_bytes sndbuf_bytes fwd_alloc_bytes
                          wmem_queued_bytes optmem_bytes backlog_bytes drops""")
)


def tcp_columns(flow: Flow, side: str, *, to_last_row: bool) -> Iterator[Columns]:
    """The columns of TCP connections; ``to_last_row``: the agent follows each one until it is destroyed."""
    own = (*_INFO, *_INFO_COUNTERS, *(_SOCKET if to_last_row else ("cookie",)))
    many = names("pacing_rate_Bps min_rtt_us congestion_control")
    many += ("max_pacing_rate_Bps",) if flow.pacing_bps is not None and side == "sender" else ()
    ended = ("final", *MEMORY) if to_last_row else ()
    # If ports are not known in advance, a later connection may reuse the number of an earlier one.
    numbered = "cookie" if flow.of_kind.any_client_port else "stream"
    yield rows_of(
        "tcp_info",
        own,
        sometimes=(*many, *ended),
        counters=_INFO_COUNTERS,
        match={"flow": flow.name, "side": side},
        series=("flow", "side", numbered),
        since=_INFO_SINCE,
        steady=False,
    )


# --- connections that are followed ----------------------------------------------------------------


class Connections(Found):
    """Streams over TCP that the agents of both ends sample until they are destroyed."""

    client: ClassVar[str]  # the action whose host has the senders

    def events(self, flow: Flow, action: str, told: list[Any]) -> Iterator[Key]:
        """The agent reads the congestion control of the connections."""
        if action == self.client:
            yield "flow_congestion_control", flow.name

    def checks(self, of: Asked, flow: Flow) -> Iterator[Check]:
        """Checks of the path, the congestion control, the pacing, and both ends of each stream."""
        rows = of_measurement(of.tables["tcp_info"]).filter(flow=flow.name)
        yield from path_met(of, flow, of_measurement(of.tables["tcp_info"]))
        yield from congestion_control(flow, self.congestion_controls(of.run, of.tables, flow))
        for side in ("sender", "receiver"):
            yield from connections(of, flow, side, rows.filter(side=side))
            if not flow.bytes:
                yield from sampled(of, flow, side, rows.filter(side=side), flow.end_ns)
        yield from pacing(of, flow)

    def columns(self, flow: Flow, side: str, part: PhaseHost) -> Iterator[Columns]:
        """The columns of the connections' samples, web100 variables and traces."""
        if flow.name not in part.sample.tcp:
            return
        match = {"flow": flow.name, "side": side}
        yield from tcp_columns(flow, side, to_last_row=True)
        yield rows_of("web100", (), sometimes=WEB100, match=match, steady=False)
        if part.sample.trace:
            own = names("data_bytes snd_nxt snd_una snd_cwnd snd_ssthresh snd_wnd srtt_us rcv_wnd")
            yield rows_of("tcp_probe", own, match=match, steady=False)

    def lost(self, run: Run, tables: Tables, flow: Flow, last_ns: int) -> Lost | str:
        """Lost segments, from what the kernels of both ends counted until their sockets ended."""
        rows = tables["tcp_info"].filter(phase="measurement", flow=flow.name)
        needed = ("data_segs_out", "data_segs_in", "bytes_sent", "bytes_retrans", "bytes_acked", "snd_mss")
        if not {*needed, "final"} <= {*rows.columns}:
            return "its ends were not sampled to their last row"
        ends = rows.filter(pl.col("final").fill_null(value=False))
        sent, got = ends.filter(side="sender"), ends.filter(side="receiver")
        if sent.height != flow.streams or got.height != flow.streams:
            seen = f"{sent.height} ends of its sender and {got.height} of its receiver"
            return f"{seen} were seen, of {flow.streams}"
        before = (
            rows.filter((pl.col("t_ns") <= last_ns) & (pl.col("side") == "sender"))
            .sort("t_ns")
            .group_by("stream")
            .agg(pl.col("data_segs_out").last())
        )
        left = sent.select((pl.col("bytes_sent") - pl.col("bytes_retrans") - pl.col("bytes_acked")).clip(0)
                           // pl.col("snd_mss") + 1).sum().item()  # fmt: skip
        out, came = int(sent["data_segs_out"].sum()), int(got["data_segs_in"].sum())
        return Lost(
            max(0, out - came - left), left, out - int(before["data_segs_out"].sum()) + flow.streams, out
        )

    def retransmitted(self, tables: Tables, flow: Flow) -> Counted:
        """Retransmissions of all streams."""
        return retransmits(tables["tcp_info"].filter(IN_MEASUREMENT).filter(flow=flow.name, side="sender"))


# --- tables ---------------------------------------------------------------------------------------


def retransmits(tcp_info: pl.DataFrame) -> Counted:
    """Segments that a sender retransmitted, over all streams, and their share of all segments with data.

    ``tcp_info`` has the sender's rows. Its counters have 32 bits; wraps are accounted for.
    """
    counters = ("total_retrans", "data_segs_out")
    if tcp_info.is_empty() or not {*counters} <= {*tcp_info.columns}:
        return None, None
    totals = tcp_info.group_by("stream").agg(
        pl.col(name).sort_by("t_ns").first().cast(pl.Int64)
        + analysis.grown_u32(pl.col(name).sort_by("t_ns")).sum()
        for name in counters
    )
    return share(*totals.select(pl.col(name).sum() for name in counters).row(0))


def foreign(path: Path) -> int:
    """What a server counted as coming from others than its client; ``path`` is the server's file."""
    counts = [line.get(key) for line in read_jsonl(path) for key in ("foreign", "foreign_packets")]
    return sum(count for count in counts if isinstance(count, int))
