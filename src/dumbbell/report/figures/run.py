"""Figures of one run over time: goodput, windows, queues, fairness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import plotly.graph_objects as go
import polars as pl

from dumbbell.plan import Conditions, Flow, PlannedPath
from dumbbell.report.figures.base import (
    COLOURS,
    MAX_POINTS,
    Steps,
    add_level,
    add_line,
    add_steps,
    axes,
    thin,
)
from dumbbell.units import human

RATE = "rate of the bottleneck, headers included"


def label(flow: Flow) -> str:
    """``flow1 (cubic, sender1 → receiver1)``."""
    what = flow.congestion_control or ("atou" if flow.kind == "atou" else "UDP")
    return f"{flow.name} ({what}, {flow.src_host} → {flow.dst_host})"


def goodput(
    rates: pl.DataFrame,
    flows: Sequence[Flow],
    path: PlannedPath | None,
    x_max_s: float,
    asked: Mapping[str, Steps] = MappingProxyType({}),
) -> go.Figure:
    """``rates`` from :func:`dumbbell.analysis.goodput`, and the requested rates (Mbit/s), by name."""
    figure = axes(x_max_s, "goodput (Mbit/s)")
    for i, flow in enumerate(flows):
        rows = rates.filter(pl.col("flow") == flow.name).with_columns(y=pl.col("goodput_bps") / 1e6)
        if rows.height:
            add_line(figure, rows, "y", name=label(flow), index=i, unit="Mbit/s")
    for name, steps in asked.items():
        add_steps(figure, [*steps, (x_max_s, steps[-1][1])], name=name, unit="Mbit/s")
    if path is not None:
        rates_mbps = over_time(path, lambda there, _: there.rate_bps / 1e6)
        add_level(figure, rates_mbps, RATE)
        highest_bps: float | None = rates["goodput_bps"].max()  # type: ignore[assignment]
        highest = max(1.12 * max(rate for _, rate in rates_mbps), 1.02 * (highest_bps or 0) / 1e6)
        figure.update_yaxes(range=[0, highest], row=1, col=1)
    return figure


def per_flow(
    samples: pl.DataFrame,
    flows: Sequence[Flow],
    x_max_s: float,
    *,
    title: str,
    unit: str,
    levels: Sequence[tuple[Steps, str]],
) -> go.Figure:
    """One line for each connection of ``[flow, stream, t_ns, y]``, already in ``unit``.

    ``layout.meta`` says whether samples were left out (``thinned``).
    """
    figure = axes(x_max_s, title)
    most = samples.group_by("flow", "stream").len()["len"].max()
    figure.update_layout(meta={"thinned": isinstance(most, int) and most > MAX_POINTS})
    for i, flow in enumerate(flows):
        own = samples.filter(pl.col("flow") == flow.name)
        for (stream,), rows in own.group_by("stream", maintain_order=True):
            name = label(flow) if flow.streams == 1 else f"{label(flow)} stream {stream}"
            add_line(figure, thin(rows, "y"), "y", name=name, index=i, unit=unit)
    for steps, text in levels:
        add_level(figure, steps, text)
    return figure


def queue(rows: pl.DataFrame, path: PlannedPath | None, x_max_s: float) -> go.Figure:
    """Queue length and drops of each qdisc, from :func:`dumbbell.analysis.queue`, and the path's limit."""
    figure = axes(x_max_s, "queue (packets)", rows=2, height=430)
    devices = rows.group_by("host", "dev", "kind", maintain_order=True)
    # Colours after those of the first two flows, because a device is not a flow.
    for i, ((host, dev, kind), own) in enumerate(devices, start=2):
        name = f"{host} {dev} ({kind})"
        add_line(figure, thin(own, "qlen_packets"), "qlen_packets", name=name, index=i, unit="packets")
        dropped = own.filter(pl.col("dropped_packets") > 0)
        figure.add_trace(
            go.Scatter(
                x=(dropped["t_ns"] / 1e9).round(4).to_list() or [None],
                y=dropped["dropped_packets"].to_list() or [None],
                name=f"drops {host} {dev}",
                mode="markers",
                marker={
                    "color": COLOURS[i % len(COLOURS)],
                    "size": 6,
                    "symbol": ("circle", "diamond", "square")[i % 3],
                },
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [0] * dropped.height,
                    "arrayminus": dropped["dropped_packets"].to_list(),
                    "width": 0,
                    "thickness": 1.2,
                },
                showlegend=False,
                hovertemplate="%{y} dropped",
            ),
            row=2,
            col=1,
        )
    if path and path.forward.queue.limit_packets:
        limits = over_time(path, lambda there, _: there.queue.limit_packets or 0)
        add_level(figure, limits, f"limit {limits[-1][1]:g} packets")
    figure.update_yaxes(title_text="drops (packets)", row=2, col=1)
    return figure


def fairness(rows: pl.DataFrame, overall: float | None, x_max_s: float) -> go.Figure:
    """Jain's index over time, from :func:`dumbbell.analysis.fairness`, and over the common window."""
    figure = axes(x_max_s, "Jain's index")
    add_line(figure, rows, "jain_index", name="in each interval", index=0, unit="")
    if overall is not None:
        add_level(figure, [(0, overall)], f"{overall:.3f} while all flows run")
    figure.update_yaxes(range=[0, 1.08], row=1, col=1)
    return figure


def over_time(path: PlannedPath, value: Callable[[Conditions, float], float]) -> Steps:
    """Steps of a value that depends on a direction's conditions and the round-trip time (ns)."""
    return [
        (at / 1e9, value(there, 1000 * (there.delay_us + back.delay_us))) for at, there, back in path.states
    ]


def cwnd(samples: pl.DataFrame, flows: Sequence[Flow], path: PlannedPath | None, x_max_s: float) -> go.Figure:
    """Windows of ``[flow, stream, t_ns, y]``, in segments, and the bandwidth-delay product."""
    levels = [(over_time(path, partial(_bdp_packets, path.packet_bytes)), "1 BDP")] if path else []
    return per_flow(samples, flows, x_max_s, title="cwnd (segments)", unit="segments", levels=levels)


def srtt(samples: pl.DataFrame, flows: Sequence[Flow], path: PlannedPath | None, x_max_s: float) -> go.Figure:
    """Smoothed RTTs of ``[flow, stream, t_ns, y]``, in ms, and the RTT with an empty and a full queue."""
    levels: list[tuple[Steps, str]] = []
    if path:
        empty = over_time(path, lambda _, rtt_ns: rtt_ns / 1e6)
        for own_us in sorted({0, *(flow.delay_us or 0 for flow in flows)}):
            more = f", with {human(1000 * own_us, 'ns')} of a flow's own" if own_us else ""
            levels.append(([(at, ms + own_us / 1000) for at, ms in empty], f"RTT of the empty path{more}"))
        if path.forward.queue.limit_packets:
            full = over_time(path, partial(_full_queue_ms, path.packet_bytes))
            levels.append((full, "RTT with a full queue"))
    return per_flow(samples, flows, x_max_s, title="smoothed RTT (ms)", unit="ms", levels=levels)


def _bdp_packets(packet_bytes: int, there: Conditions, rtt_ns: float) -> float:
    """Bandwidth-delay product in packets of full size."""
    return there.rate_bps * rtt_ns / 8e9 / packet_bytes


def _full_queue_ms(packet_bytes: int, there: Conditions, rtt_ns: float) -> float:
    """Round-trip time (ms) when the queue is full."""
    return (rtt_ns + there.fullest_ns(packet_bytes)) / 1e6
