"""Figures of one run, in the colours of Okabe and Ito: told apart with any colour vision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from dumbbell.plan import PACKET_BYTES, Conditions, Flow, PlannedPath

# M. Okabe, K. Ito, "Color Universal Design", 2008; yellow is left out: too pale for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("solid", "dash", "dot")
MAX_POINTS = 4000  # of a series: more than there are pixels, few enough for a report that can be mailed

Steps = Sequence[tuple[float, float]]  # since when (s) it is what

_FONT = 'system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif'


def _figure(x_max_s: float, y_title: str, *, rows: int = 1, height: int = 330) -> go.Figure:
    heights = [1.0] if rows == 1 else [0.68, 0.32]
    figure = make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.07, row_heights=heights)
    figure.update_layout(
        template="simple_white",
        font={"family": _FONT, "size": 13, "color": "#1a1c1f"},
        height=height,
        margin={"l": 70, "r": 16, "t": 34, "b": 46},
        hovermode="x unified",
        hoverlabel={"font_size": 12},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "bgcolor": "rgba(0,0,0,0)"},
        showlegend=True,
    )
    figure.update_xaxes(
        range=[0, x_max_s], showgrid=True, gridcolor="#eceff2", ticks="outside", zeroline=False
    )
    figure.update_yaxes(
        rangemode="tozero", showgrid=True, gridcolor="#eceff2", title_standoff=8, tickformat="~g"
    )
    figure.update_xaxes(title_text="time since t0 (s)", row=rows, col=1)
    figure.update_yaxes(title_text=y_title, row=1, col=1)
    return figure


def _line(figure: go.Figure, rows: pl.DataFrame, y: str, *, name: str, index: int, unit: str) -> None:
    colour = COLOURS[index % len(COLOURS)]
    figure.add_trace(
        go.Scatter(
            x=(rows["t_ns"] / 1e9).round(4).to_list(),
            y=rows[y].to_list(),
            name=name,
            mode="lines",
            line={"color": colour, "width": 1.7, "dash": DASHES[index // len(COLOURS) % len(DASHES)]},
            hovertemplate=f"%{{y:.4~g}} {unit}",
        ),
        row=1,
        col=1,
    )


def _level(figure: go.Figure, steps: Steps, text: str) -> None:
    """A reference line, with its label at the right above it."""
    x_max_s = figure.layout.xaxis.range[1]
    edges = [*steps, (x_max_s, steps[-1][1])]
    figure.add_trace(
        go.Scatter(
            x=[at_s for at_s, _ in edges],
            y=[y for _, y in edges],
            mode="lines",
            line={"color": "#5c636b", "width": 1.3, "dash": "dot", "shape": "hv"},
            showlegend=False,
            hoverinfo="skip",
        ),
        row=1,
        col=1,
    )
    figure.add_annotation(
        x=x_max_s,
        y=steps[-1][1],
        text=text,
        font={"size": 11.5, "color": "#5c636b"},
        bgcolor="rgba(255,255,255,.75)",
        showarrow=False,
        xanchor="right",
        yanchor="bottom",
        row=1,
        col=1,
    )


def label(flow: Flow) -> str:
    """``flow1 (cubic, sender1 → receiver1)``."""
    return f"{flow.name} ({flow.congestion_control or 'UDP'}, {flow.src_host} → {flow.dst_host})"


def thin(rows: pl.DataFrame, y: str) -> pl.DataFrame:
    """The lowest and the highest sample of each of :data:`MAX_POINTS` / 2 stretches: no extreme is lost."""
    if rows.height <= MAX_POINTS:
        return rows
    stretch = pl.int_range(pl.len()) * (MAX_POINTS // 2) // pl.len()
    grouped = rows.with_columns(stretch=stretch).group_by("stretch", maintain_order=True)
    extremes = grouped.agg(low=pl.col(y).arg_min(), high=pl.col(y).arg_max(), first=pl.len().cast(pl.Int64))
    starts = extremes["first"].cum_sum().shift(1, fill_value=0)
    picked = pl.concat([starts + extremes["low"], starts + extremes["high"]]).unique().sort()
    return rows[picked]


def goodput(
    rates: pl.DataFrame, flows: Sequence[Flow], path: PlannedPath | None, x_max_s: float
) -> go.Figure:
    """``rates`` as :func:`dumbbell.analysis.goodput` gives them."""
    figure = _figure(x_max_s, "goodput (Mbit/s)")
    for i, flow in enumerate(flows):
        rows = rates.filter(pl.col("flow") == flow.name).with_columns(y=pl.col("goodput_bps") / 1e6)
        if rows.height:
            _line(figure, rows, "y", name=label(flow), index=i, unit="Mbit/s")
    if path is not None:
        rates_mbps = over_time(path, lambda there, _: there.rate_bps / 1e6)
        _level(figure, rates_mbps, "rate of the bottleneck, headers included")
        figure.update_yaxes(range=[0, 1.12 * max(rate for _, rate in rates_mbps)], row=1, col=1)
    return figure


def per_flow(
    samples: pl.DataFrame,
    flows: Sequence[Flow],
    x_max_s: float,
    *,
    column: str,
    title: str,
    unit: str,
    levels: Sequence[tuple[Steps, str]],
) -> go.Figure:
    """One line a connection of a column ``[flow, stream, t_ns, column]``, already in ``unit``."""
    figure = _figure(x_max_s, title)
    for i, flow in enumerate(flows):
        own = samples.filter(pl.col("flow") == flow.name)
        for (stream,), rows in own.group_by("stream", maintain_order=True):
            name = label(flow) if flow.streams == 1 else f"{label(flow)} stream {stream}"
            _line(figure, thin(rows, column), column, name=name, index=i, unit=unit)
    for steps, text in levels:
        _level(figure, steps, text)
    return figure


def queue(rows: pl.DataFrame, limits_packets: Steps | None, x_max_s: float) -> go.Figure:
    """Queue length and drops of each qdisc, from :func:`dumbbell.analysis.queue`."""
    figure = _figure(x_max_s, "queue (packets)", rows=2, height=430)
    devices = rows.group_by("host", "dev", "kind", maintain_order=True)
    # Colours after those of the first two flows: a device is not a flow.
    for i, ((host, dev, kind), own) in enumerate(devices, start=2):
        name = f"{host} {dev} ({kind})"
        _line(figure, thin(own, "qlen_packets"), "qlen_packets", name=name, index=i, unit="packets")
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
    if limits_packets is not None:
        _level(figure, limits_packets, f"limit {limits_packets[-1][1]:g} packets")
    figure.update_yaxes(title_text="drops (packets)", row=2, col=1)
    return figure


def fairness(rows: pl.DataFrame, overall: float | None, x_max_s: float) -> go.Figure:
    """Jain's index over time, from :func:`dumbbell.analysis.fairness`, and over the whole common window."""
    figure = _figure(x_max_s, "Jain's index")
    _line(figure, rows, "jain_index", name="in each interval", index=0, unit="")
    if overall is not None:
        _level(figure, [(0, overall)], f"{overall:.3f} while all flows run")
    figure.update_yaxes(range=[0, 1.08], row=1, col=1)
    return figure


def over_time(path: PlannedPath, value: Callable[[Conditions, float], float]) -> Steps:
    """A value of the way there, and of the round-trip time in ns, from when on (s) it is what."""
    return [
        (at / 1e9, value(there, 1000 * (there.delay_us + back.delay_us))) for at, there, back in path.states
    ]


def bdp_packets(there: Conditions, rtt_ns: float) -> float:
    """Bandwidth-delay product in packets of full size."""
    return there.rate_bps * rtt_ns / 8e9 / PACKET_BYTES
