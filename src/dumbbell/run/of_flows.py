"""What samples, tools and agents say of a flow of the measurement, in the words of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Flow
from dumbbell.run.content import IN_MEASUREMENT, Run, dig, interval_sums
from dumbbell.run.directory import read_json

UNPACED_SEGMENTS = 10  # that the kernel sends of a connection before it paces
SUPER_PACKET_BYTES = 2**16  # the most that it sends at once
SAID = 300  # characters of what a program wrote when it failed


def client_report(run: Run, flow: Flow) -> Any:
    """What the flow's iperf3 client left; None if that is nothing."""
    return read_json(run.raw(flow.src_host, "measurement", f"iperf3-{flow.name}-client.json"))


def sent_bps(run: Run, flow: Flow) -> float | None:
    """Payload that the sender of a flow of datagrams has sent, over the time that was planned."""
    if flow.kind == "udp":
        sent = read_json(run.raw(flow.src_host, "measurement", f"udp-{flow.name}-sender.json"))
        found: float | None = dig(sent, "sent_bps")
        return found
    counts = [dig(total, "bytes") for total in interval_sums(client_report(run, flow))]
    if not counts or not all(isinstance(count, int) for count in counts):
        return None
    return float(sum(counts) * 8e9 / flow.duration_ns)


def pacing_bps(tcp_info: pl.DataFrame, asked_bps: int) -> tuple[float | None, str]:
    """The limit that the kernel had for the sockets of a sender, and why it is not known.

    Of several the one that is furthest from what was asked. ``tcp_info`` has the sender's rows; those before
    its data may be from before it had set the limit.
    """
    if tcp_info.is_empty() or "data_segs_out" not in tcp_info.columns:
        return None, "its sender was not sampled"
    sending = tcp_info.filter(pl.col("data_segs_out") > 1)
    if sending.is_empty():
        return None, "it sent no data"
    limit = "max_pacing_rate_Bps"
    if limit not in sending.columns or sending[limit].has_nulls():
        return None, "the kernel does not limit the sender's socket"
    return max((8.0 * Bps for Bps in sending[limit].unique()), key=lambda bps: abs(bps - asked_bps)), ""


def paced_bps(tcp_info: pl.DataFrame, start_ns: int) -> float | None:
    """The rate of the payload that a sender sent, also again, from its start to its last row.

    Of several streams the highest. ``tcp_info`` has the sender's rows. What the kernel sends before it paces
    is left out.
    """
    if not {"bytes_sent", "snd_mss", "t_ns"} <= {*tcp_info.columns}:
        return None
    paced = pl.col("bytes_sent") - UNPACED_SEGMENTS * pl.col("snd_mss") - SUPER_PACKET_BYTES
    time_ns = pl.col("t_ns").last() - start_ns
    rates = tcp_info.sort("t_ns").group_by("stream").agg((8e9 * paced.last().clip(0) / time_ns).alias("bps"))
    highest: Any = rates["bps"].max()
    return None if highest is None else float(highest)


def unsampled_share(tcp_info: pl.DataFrame, span_ns: tuple[int, int], interval_ns: int) -> float | None:
    """Share of a time that is further from the next sample than the sampling interval; of the worst stream.

    ``tcp_info`` has the rows of one end of a flow. None without any in that time.
    """
    start, end = span_ns
    rows = tcp_info.filter(pl.col("t_ns").is_between(start, end))
    missed = []
    for _, stream in rows.group_by("stream"):
        times = pl.concat([pl.Series([start]), stream["t_ns"].sort(), pl.Series([end])])
        missed.append(int((times.diff() - 2 * interval_ns).clip(0).sum()) / (end - start))
    return max(missed, default=None)


def failures(run: Run, flow: Flow) -> list[str]:
    """What agents say went wrong with the programs of a flow, in order of time."""
    found = []
    for event in run.agent_events:
        if (event.get("event"), event.get("flow"), event["phase"]) == (
            "process_exit",
            flow.name,
            "measurement",
        ):
            words = " ".join(str(event.get("stderr") or "it said nothing").split())[:SAID]
            found.append(
                f"{event.get('action')} on {event['host']} ended with code {event.get('code')}: {words}"
            )
    return found


def why_no_start(run: Run, flow: Flow) -> str:
    """Why the agent saw no first data of a flow, from the first thing that went wrong on."""
    events = (
        run.event(name, flow=flow.name, phase="measurement") for name in ("flow_held", "flow_first_data")
    )
    reasons = [str(event["reason"]) for event in events if event and event.get("reason")]
    return "; ".join(reasons) or "the agent saw no first data"


# --- what was sent again, and what was lost --------------------------------------------------------


def with_losses(flows: pl.DataFrame, run: Run, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """A table of flows with what those of the measurement sent again, or lost, in their whole life.

    ``retransmitted_segments`` and their share of all segments with data, ``retransmits``; ``lost_packets`` of
    UDP and their share of all datagrams, ``loss``. Null where that is not known, or is of the other protocol.
    """
    columns: dict[str, type[pl.DataType]] = {
        **dict.fromkeys(("phase", "name"), pl.String),
        "retransmitted_segments": pl.Int64,
        "retransmits": pl.Float64,
        "lost_packets": pl.Int64,
        "loss": pl.Float64,
    }
    tcp_info = tables["tcp_info"].filter(IN_MEASUREMENT)
    fetched = analysis.fetches(tables["http_fetch"].filter(IN_MEASUREMENT))
    rows = []
    for flow in run.point.phase("measurement").flows:
        again: tuple[int | None, float | None] = (None, None)
        lost: tuple[int | None, float | None] = (None, None)
        if flow.kind in ("iperf3_tcp", "atou"):
            again = retransmits(tcp_info.filter(flow=flow.name, side="sender"))
        elif flow.kind == "http":
            sums = fetched.filter("done", flow=flow.name).select(pl.col("retransmits", "segments").sum())
            again = _share(*sums.row(0))
        elif flow.kind in ("udp", "iperf3_udp"):
            lost = _lost_datagrams(run, flow)
        rows.append(("measurement", flow.name, *again, *lost))
    found = pl.DataFrame(rows, columns, orient="row")
    return flows.join(found, on=["phase", "name"], how="left", maintain_order="left")


def retransmits(tcp_info: pl.DataFrame) -> tuple[int | None, float | None]:
    """Segments that a sender sent again, of all streams, and their share of all that it sent with data.

    ``tcp_info`` has the sender's rows. The counters have 32 bits and are counted on beyond.
    """
    names = ("total_retrans", "data_segs_out")
    if tcp_info.is_empty() or not {*names} <= {*tcp_info.columns}:
        return None, None
    totals = tcp_info.group_by("stream").agg(
        pl.col(name).sort_by("t_ns").first().cast(pl.Int64)
        + analysis.grown_u32(pl.col(name).sort_by("t_ns")).sum()
        for name in names
    )
    return _share(*totals.select(pl.col(name).sum() for name in names).row(0))


def _lost_datagrams(run: Run, flow: Flow) -> tuple[int | None, float | None]:
    """Of all streams. A receiver of iperf3 does not know of those that were lost last; the sender does."""
    if flow.kind == "udp":
        got = read_json(run.raw(flow.dst_host, "measurement", f"udp-{flow.name}-receiver.json"))
        lost, received = dig(got, "lost_packets"), dig(got, "received_packets")
        if not dig(got, "end_seen") or lost is None or received is None:
            return None, None
        return _share(lost, lost + received)
    server = read_json(run.raw(flow.dst_host, "measurement", f"iperf3-{flow.name}-server.json"))
    sent = dig(client_report(run, flow), "end", "sum_sent", "packets")
    counts = [(dig(total, "packets"), dig(total, "lost_packets")) for total in interval_sums(server)]
    if sent is None or not counts or any(None in pair for pair in counts):
        return None, None
    return _share(sent - sum(packets - lost for packets, lost in counts), sent)


def _share(some: int, of: int) -> tuple[int | None, float | None]:
    return (some, some / of) if of else (None, None)
