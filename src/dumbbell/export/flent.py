"""Data files of Flent (``.flent.gz``, version 4 of its format), which plots and compares them.

Flows are the streams of Flent's own tests, so that its plots of these apply: ``tcp_nup`` of flows forward,
``tcp_ndown`` of flows in reverse, ``rrul_be_nflows`` of both.
"""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from dumbbell.plan import Flow
from dumbbell.run.content import ping_replies
from dumbbell.studies.source import Missing, Source

SUFFIX = ".flent.gz"
STEP_NS = 200_000_000  # Flent's own default
VERSION = 4
PING = "Ping (ms) ICMP"
SENDER = {
    "snd_cwnd": ("tcp_cwnd", 1.0),
    "srtt_us": ("tcp_rtt", 1000.0),
    "total_retrans": ("tcp_retrans", 1.0),
}


def write(run: Source, path: Path) -> None:
    """Write one point to a file, whose name ends with :data:`SUFFIX`; Missing without goodputs or t0."""
    t0 = run.opened.t0_unix_ns("measurement")
    if t0 is None:
        raise Missing("No host has a start.json, so it is not known when the run began.")
    flows = [flow for flow in run.planned_flows if flow.of_kind.counted_by]
    if not flows:
        raise Missing("No flow of this run has a goodput.")
    test, names = _series(flows)
    end_ns = run.plan.phase("measurement").duration_ns
    edges = range(STEP_NS // 2, end_ns, STEP_NS)  # middles of intervals
    rates = run.goodputs(STEP_NS)
    results: dict[str, list[float | None]] = {}
    raw: dict[str, list[dict[str, float]]] = {}
    for flow in flows:
        own = rates.filter(flow=flow.name)
        known = dict(zip(own["t_ns"], own["goodput_bps"] / 1e6, strict=True))
        results[names[flow.name]] = [known.get(at) for at in edges]
        raw[names[flow.name]] = [{"t": (t0 + at) / 1e9, "val": rate} for at, rate in known.items()]
        raw[names[flow.name]] += _samples(run, flow, t0)
    _add_sums(results)
    _add_pings(run, t0, edges, results, raw)
    began = datetime.fromtimestamp(t0 / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    up, down = (sum(flow.direction == way for flow in flows) for way in ("forward", "reverse"))
    metadata = {
        "NAME": test,
        "TITLE": " ".join(filter(None, [run.opened.plan.scenario, run.plan.label])),
        "NOTE": f"Dumbbell's run {run.name}: {run.verdict.get('state', 'without a verdict')}",
        "TIME": began,
        "T0": began,
        "HOST": flows[0].dst_host,
        "HOSTS": sorted({flow.dst_host for flow in flows}),
        "LOCAL_HOST": flows[0].src_host,
        "LENGTH": end_ns / 1e9,
        "TOTAL_LENGTH": end_ns / 1e9,
        "STEP_SIZE": STEP_NS / 1e9,
        "IP_VERSION": 6 if ":" in flows[0].src else 4,
        "TEST_PARAMETERS": {"upload_streams": str(up), "download_streams": str(down)},
        "DATA_FILENAME": path.name,
        "SERIES_META": {
            names[flow.name]: {
                "DUMBBELL_FLOW": flow.name,
                "CONG_CONTROL": flow.congestion_control,
                "UNITS": "Mbits/s",
            }
            for flow in flows
        }
        | {PING: {"UNITS": "ms"}},
    }
    whole = {
        "version": VERSION,
        "metadata": metadata,
        "x_values": [at / 1e9 for at in edges],
        "results": results,
        "raw_values": raw,
    }
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(whole, file)


def _series(flows: list[Flow]) -> tuple[str, dict[str, str]]:
    """The test that has such flows, and the name of each flow's series there."""
    directions = {flow.direction for flow in flows}
    test, titles = {
        frozenset({"forward"}): ("tcp_nup", {"forward": "TCP upload"}),
        frozenset({"reverse"}): ("tcp_ndown", {"reverse": "TCP download"}),
    }.get(
        frozenset(directions),
        ("rrul_be_nflows", {"forward": "TCP upload BE", "reverse": "TCP download BE"}),
    )
    names, counts = {}, dict.fromkeys(directions, 0)
    for flow in flows:
        counts[flow.direction] += 1
        names[flow.name] = f"{titles[flow.direction]}::{counts[flow.direction]}"
    return test, names


def _samples(run: Source, flow: Flow, t0: int) -> list[dict[str, float]]:
    """What ss tells Flent of a sender's socket, at each sample."""
    try:
        of = (pl.col("flow") == flow.name) & (pl.col("side") == "sender")
        rows = run.rows("tcp_info", "t_ns", *SENDER, where=of).sort("t_ns")
    except Missing:
        return []
    there = {column: SENDER[column] for column in SENDER if column in rows.columns}
    return [
        {"t": (t0 + row["t_ns"]) / 1e9}
        | {name: row[column] / scale for column, (name, scale) in there.items() if row[column] is not None}
        for row in rows.iter_rows(named=True)
    ]


def _add_sums(results: dict[str, list[float | None]]) -> None:
    """Series that Flent computes from others while it measures."""
    for title in sorted({name.partition("::")[0] for name in results}):
        own = [values for name, values in results.items() if name.startswith(f"{title}::")]
        known = [[value for value in at if value is not None] for at in zip(*own, strict=True)]
        short = title.removesuffix(" BE")
        results[f"{short} sum"] = [sum(at) if at else None for at in known]
        results[f"{short} avg"] = [sum(at) / len(at) if at else None for at in known]


def _add_pings(
    run: Source,
    t0: int,
    edges: range,
    results: dict[str, list[float | None]],
    raw: dict[str, list[dict[str, float]]],
) -> None:
    """The replies of the first ping of the measurement, if it has one."""
    for host, ping in run.opened.pings("measurement"):
        replies = ping_replies(run.opened.raw(host, "measurement", f"ping-{ping.name}.txt"))
        if not replies:
            continue
        raw[PING] = [
            {"t": reply.sent_unix_ns / 1e9, "val": reply.rtt_ns / 1e6, "seq": reply.number}
            for reply in replies
        ]
        by_step: dict[int, list[float]] = {}
        for reply in replies:
            by_step.setdefault((reply.sent_unix_ns - t0) // STEP_NS, []).append(reply.rtt_ns / 1e6)
        means = {step: sum(rtts) / len(rtts) for step, rtts in by_step.items()}
        results[PING] = [means.get(at // STEP_NS) for at in edges]
        return
