"""Traces of atou as qlog 0.3, which qvis draws: segments sent, ACKs, window, threshold and round trips.

QUIC sends no packet twice under one number; a segment of atou that is sent again has the same number.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell.plan import Flow
from dumbbell.studies.source import Missing, Source


def write(run: Source, path: Path) -> None:
    """Write the traced flows of one point; Missing if there is none."""
    flows = [flow for flow in run.planned_flows if flow.kind == "atou"]
    if not flows:
        raise Missing("This run has no flow of atou.")
    try:
        rows = run.table("atou_trace")
    except Missing:
        raise Missing("Flows of atou are traced where they have `trace: true` in the scenario.") from None
    traces = [_trace(run, flow, rows.filter(flow=flow.name)) for flow in flows]
    whole = {
        "qlog_version": "0.3",
        "qlog_format": "JSON",
        "title": run.name,
        "description": run.opened.plan.title,
        "traces": traces,
    }
    path.write_text(json.dumps(whole, indent=1) + "\n")


def _trace(run: Source, flow: Flow, rows: pl.DataFrame) -> dict[str, Any]:
    of = (pl.col("flow") == flow.name) & pl.col("snd_mss").is_not_null()
    sizes = run.rows("tcp_info", "snd_mss", where=of)["snd_mss"]
    mss = int(sizes[0]) if sizes.len() else 0
    events: list[dict[str, Any]] = []
    acked = 0
    for row in rows.iter_rows(named=True):
        time_ms = row["t_ns"] / 1e6
        if row["kind"] != "ack":
            lost = row["kind"] == "drop"
            name = "recovery:packet_lost" if lost else "transport:packet_sent"
            header = {"packet_type": "1RTT", "packet_number": row["segment"]}
            raw = {} if lost else {"raw": {"length": mss}}
            events.append({"time": time_ms, "name": name, "data": {"header": header} | raw})
            continue
        if row["segment"] > acked:
            frame = {"frame_type": "ack", "acked_ranges": [[acked, row["segment"] - 1]]}
            data = {"header": {"packet_type": "1RTT"}, "frames": [frame]}
            events.append({"time": time_ms, "name": "transport:packet_received", "data": data})
            acked = row["segment"]
        told = {
            "latest_rtt": None if row["rtt_ns"] is None else row["rtt_ns"] / 1e6,
            "congestion_window": _bytes(row["snd_cwnd"], mss),
            "ssthresh": _bytes(row["snd_ssthresh"], mss),
        }
        known = {name: value for name, value in told.items() if value is not None}
        events.append({"time": time_ms, "name": "recovery:metrics_updated", "data": known})
    t0 = run.opened.t0_unix_ns("measurement") or 0
    return {
        "title": flow.name,
        "vantage_point": {"name": flow.src_host, "type": "client"},
        "common_fields": {"time_format": "relative", "reference_time": t0 / 1e6},
        "events": events,
    }


def _bytes(segments: int | None, mss: int) -> int | None:
    return None if segments is None else segments * mss
