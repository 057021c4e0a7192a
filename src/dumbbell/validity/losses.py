"""How many packets a flow sent that its receiver did not get, as the ends of each kind of flow tell it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from dumbbell.plan import Flow
from dumbbell.run.content import Run, dig, interval_sums
from dumbbell.run.directory import read_json, read_jsonl

Tables = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Lost:
    """What a flow sent and its receiver did not get, and how much of that may have been on its way."""

    packets: int
    under_way: int  # at the end, when the receiver no longer looked
    unseen: int  # sent after the router's queues were sampled last
    sent: int


def lost_by(run: Run, tables: Tables, flow: Flow, last_ns: int) -> Lost | str:
    """What a flow lost; why that is not known; or '' of kinds of which nothing tells."""
    match flow.kind:
        case "iperf3_tcp":
            return _tcp(tables, flow, last_ns)
        case "udp":
            return _udp(run, tables, flow, last_ns)
        case "iperf3_udp":
            return _iperf3_udp(run, flow, last_ns)
        case "atou":
            return _atou(run, tables, flow, last_ns)
    return ""


def _tcp(tables: Tables, flow: Flow, last_ns: int) -> Lost | str:
    """By the segments that the kernels of both ends counted until their sockets ended."""
    rows = tables["tcp_info"].filter(phase="measurement", flow=flow.name)
    names = ("data_segs_out", "data_segs_in", "bytes_sent", "bytes_retrans", "bytes_acked", "snd_mss")
    if not {*names, "final"} <= {*rows.columns}:
        return "its ends were not sampled to their last row"
    ends = rows.filter(pl.col("final").fill_null(value=False))
    sent, got = ends.filter(side="sender"), ends.filter(side="receiver")
    if sent.height != flow.streams or got.height != flow.streams:
        return (
            f"{sent.height} ends of its sender and {got.height} of its receiver were seen, of {flow.streams}"
        )
    before = (
        rows.filter((pl.col("t_ns") <= last_ns) & (pl.col("side") == "sender"))
        .sort("t_ns")
        .group_by("stream")
        .agg(pl.col("data_segs_out").last())
    )
    left = sent.select((pl.col("bytes_sent") - pl.col("bytes_retrans") - pl.col("bytes_acked")).clip(0)
                       // pl.col("snd_mss") + 1).sum().item()  # fmt: skip
    out, came = int(sent["data_segs_out"].sum()), int(got["data_segs_in"].sum())
    return Lost(max(0, out - came - left), left, out - int(before["data_segs_out"].sum()) + flow.streams, out)


def _udp(run: Run, tables: Tables, flow: Flow, last_ns: int) -> Lost | str:
    got = read_json(run.raw(flow.dst_host, "measurement", f"udp-{flow.name}-receiver.json"))
    sent = read_json(run.raw(flow.src_host, "measurement", f"udp-{flow.name}-sender.json"))
    lost, out = dig(got, "lost_packets"), dig(sent, "sent_packets")
    refused = dig(sent, "dropped_packets")
    if not dig(got, "end_seen") or None in (lost, out, refused):
        return "its ends have not told it"
    rows = tables["udp"].filter(phase="measurement", flow=flow.name, side="sender")
    before: Any = None
    if "sent_packets" in rows.columns:
        before = rows.filter(pl.col("t_ns") <= last_ns)["sent_packets"].max()
    unseen = out - (before or 0) if last_ns < flow.end_ns else 0
    return Lost(max(0, lost - refused), 0, unseen, out)


def _iperf3_udp(run: Run, flow: Flow, last_ns: int) -> Lost | str:
    client = read_json(run.raw(flow.src_host, "measurement", f"iperf3-{flow.name}-client.json"))
    server = read_json(run.raw(flow.dst_host, "measurement", f"iperf3-{flow.name}-server.json"))
    sent = dig(client, "end", "sum_sent", "packets")
    counts = [(dig(total, "packets"), dig(total, "lost_packets")) for total in interval_sums(server)]
    if not isinstance(sent, int) or not counts or any(None in pair for pair in counts):
        return "its ends have not told it"
    unseen = math.ceil(sent * max(0, flow.end_ns - last_ns) / flow.duration_ns)
    lost = sent - sum(packets - lost for packets, lost in counts)
    return Lost(max(0, lost), 0, unseen + flow.streams, sent)


def _atou(run: Run, tables: Tables, flow: Flow, last_ns: int) -> Lost | str:
    told = read_json(run.raw(flow.src_host, "measurement", f"atou-{flow.name}-sender.json"))
    ends = read_jsonl(run.raw(flow.dst_host, "measurement", f"atou-{flow.name}-receiver.json"))
    out, came = dig(told, "pkts_out"), dig(ends[-1], "arrived_segments") if ends else None
    refused = dig(told, "enobufs")
    if not all(isinstance(count, int) for count in (out, came, refused)):
        return "its ends have not told it"
    rows = tables["tcp_info"].filter(phase="measurement", flow=flow.name, side="sender")
    before: Any = (
        rows.filter(pl.col("t_ns") <= last_ns)["data_segs_out"].max()
        if "data_segs_out" in rows.columns
        else 0
    )
    drops = dig(ends[-1], "socket_drops") or 0
    return Lost(max(0, out - came - refused - drops), 0, max(0, out - (before or 0)), out)
