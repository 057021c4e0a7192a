"""Figures of one run, in the colours of Okabe and Ito: told apart with any colour vision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from dumbbell.plan import Conditions, Flow, PlannedPath

# M. Okabe, K. Ito, "Color Universal Design", 2008; yellow is left out: too pale for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("solid", "dash", "dot")
MAX_POINTS = 4000  # of a series: more than there are pixels, few enough for a report that can be mailed

LONG_TITLE = 24  # characters beside the vertical axis, from which on the unit gets a line of its own

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
    if len(y_title) > LONG_TITLE:
        y_title = y_title.replace(" (", "<br>(")
    figure.update_yaxes(title_text=y_title, automargin=True, row=1, col=1)
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


def _steps(figure: go.Figure, steps: Steps, *, name: str, unit: str) -> None:
    """What is so from a moment on until the next, with a name in the legend."""
    figure.add_trace(
        go.Scatter(
            x=[at_s for at_s, _ in steps],
            y=[y for _, y in steps],
            name=name,
            mode="lines",
            line={"color": "#000000", "width": 1.5, "dash": "dash", "shape": "hv"},
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
    what = flow.congestion_control or ("atou" if flow.kind == "atou" else "UDP")
    return f"{flow.name} ({what}, {flow.src_host} → {flow.dst_host})"


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
    rates: pl.DataFrame,
    flows: Sequence[Flow],
    path: PlannedPath | None,
    x_max_s: float,
    asked: Mapping[str, Steps] = MappingProxyType({}),
) -> go.Figure:
    """``rates`` as :func:`dumbbell.analysis.goodput` gives them, and what was asked for (Mbit/s), by name."""
    figure = _figure(x_max_s, "goodput (Mbit/s)")
    for i, flow in enumerate(flows):
        rows = rates.filter(pl.col("flow") == flow.name).with_columns(y=pl.col("goodput_bps") / 1e6)
        if rows.height:
            _line(figure, rows, "y", name=label(flow), index=i, unit="Mbit/s")
    for name, steps in asked.items():
        _steps(figure, [*steps, (x_max_s, steps[-1][1])], name=name, unit="Mbit/s")
    if path is not None:
        rates_mbps = over_time(path, lambda there, _: there.rate_bps / 1e6)
        _level(figure, rates_mbps, "rate of the bottleneck, headers included")
        highest_bps: float | None = rates["goodput_bps"].max()  # type: ignore[assignment]
        highest = max(1.12 * max(rate for _, rate in rates_mbps), 1.02 * (highest_bps or 0) / 1e6)
        figure.update_yaxes(range=[0, highest], row=1, col=1)
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


def bdp_packets(packet_bytes: int, there: Conditions, rtt_ns: float) -> float:
    """Bandwidth-delay product in packets of full size."""
    return there.rate_bps * rtt_ns / 8e9 / packet_bytes


def lines(
    series: Mapping[str, pl.DataFrame],
    x_max_s: float,
    *,
    title: str,
    unit: str,
    least_s: float = 0,
    levels: Sequence[tuple[Steps, str]] = (),
) -> go.Figure:
    """One line for each name, of tables ``[t_ns, y]``; thinned for the eye, with its extremes kept."""
    figure = _figure(x_max_s, title)
    for i, (name, rows) in enumerate(series.items()):
        shown = rows.filter(pl.col("y").is_not_null())
        _line(figure, thin(shown, "y"), "y", name=name, index=i, unit=unit)
    for steps, text in levels:
        _level(figure, steps, text)
    if least_s:
        figure.update_xaxes(range=[least_s, x_max_s])
    return figure


def scatter(
    sets: Mapping[str, pl.DataFrame],
    *,
    x_title: str,
    y_title: str,
    lines: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({}),
) -> go.Figure:
    """Points of tables ``[x, y]``, at most :data:`MAX_POINTS` of each, and lines through given points."""
    figure = _figure(1, y_title)
    figure.update_xaxes(title_text=x_title, range=None, rangemode="tozero")
    figure.update_layout(hovermode="closest")
    for i, (name, rows) in enumerate(sets.items()):
        shown = rows.drop_nulls(["x", "y"])
        shown = shown.sample(min(MAX_POINTS, shown.height), seed=1)  # the same at each time
        marker = {"color": COLOURS[i % len(COLOURS)], "size": 4, "opacity": 0.45}
        figure.add_trace(
            go.Scatter(
                x=shown["x"].to_list(),
                y=shown["y"].to_list(),
                name=name,
                mode="markers",
                marker=marker,
                hovertemplate="%{x:.4~g}, %{y:.4~g}",
            )
        )
    for name, points in lines.items():
        figure.add_trace(
            go.Scatter(
                x=[x for x, _ in points],
                y=[y for _, y in points],
                name=name,
                mode="lines",
                line={"color": "#000000", "width": 1.8, "dash": "dash"},
                hoverinfo="skip",
            )
        )
    return figure


def histogram(values: pl.Series, *, title: str, bins: int = 60) -> go.Figure:
    """How often values fell into each of so many bins of equal width; counted here, whatever their number."""
    figure = _figure(1, "samples")
    counted, edges = np.histogram(values.drop_nulls().to_numpy(), bins=bins)
    figure.update_xaxes(title_text=title, range=None)
    figure.update_layout(showlegend=False, bargap=0, hovermode="closest")
    figure.add_trace(
        go.Bar(
            x=((edges[1:] + edges[:-1]) / 2).tolist(),
            y=counted.tolist(),
            width=np.diff(edges).tolist(),
            marker={"color": COLOURS[0]},
            hovertemplate="%{x:.4~g}: %{y}",
        )
    )
    return figure


def intervals(names: Sequence[str], rows: pl.DataFrame, *, title: str) -> go.Figure:
    """A point for each name with its interval, of a table ``[ratio, low, high]``; 1 is no difference."""
    figure = _figure(1, "", height=90 + 24 * len(names))
    figure.update_layout(showlegend=False, hovermode="closest", margin={"l": 10})
    figure.update_xaxes(title_text=title, range=None)
    figure.update_yaxes(automargin=True, autorange="reversed", tickformat="")
    ratio = rows["ratio"]
    figure.add_trace(
        go.Scatter(
            x=ratio.to_list(),
            y=list(names),
            mode="markers",
            marker={"color": COLOURS[0], "size": 8},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": (rows["high"] - ratio).fill_null(0).to_list(),
                "arrayminus": (ratio - rows["low"]).fill_null(0).to_list(),
            },
            hovertemplate="%{y}: %{x:.4~g}",
        )
    )
    figure.add_vline(x=1, line={"color": "#5c636b", "width": 1.3, "dash": "dot"})
    return figure


STATES = {
    1: ("Disorder", "#F0E442"),
    2: ("CWR", "#56B4E9"),
    3: ("Recovery", "#E69F00"),
    4: ("Loss", "#D55E00"),
}


def shade_states(figure: go.Figure, states: pl.DataFrame, since_ns: float, until_ns: float) -> None:
    """A background for each stretch of ``[t_ns, ca_state]`` in another state than Open, of one sender."""
    changed = states.filter(pl.col("ca_state").ne_missing(pl.col("ca_state").shift()))
    spans = changed.with_columns(end_ns=pl.col("t_ns").shift(-1, fill_value=states["t_ns"].max()))
    near = spans.filter(
        pl.col("ca_state").is_in(list(STATES)), pl.col("t_ns") < until_ns, pl.col("end_ns") > since_ns
    )
    for row in near.iter_rows(named=True):
        _, colour = STATES[row["ca_state"]]
        ends = (max(row["t_ns"], since_ns) / 1e9, min(row["end_ns"], until_ns) / 1e9)
        figure.add_vrect(x0=ends[0], x1=ends[1], fillcolor=colour, opacity=0.3, line_width=0, layer="below")
    for state in sorted(near["ca_state"].unique()):
        name, colour = STATES[state]
        marker = {"symbol": "square", "size": 12, "color": colour, "opacity": 0.4}
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=marker))


def bars(
    names: Sequence[str], sets: Mapping[str, Sequence[pl.Series]], *, title: str, scale: float
) -> go.Figure:
    """For each name a bar of each set: the mean, over ``scale``, with a standard deviation up and down."""
    figure = _figure(1, title, height=380)
    figure.update_xaxes(title_text=None, range=None, type="category")
    figure.update_yaxes(rangemode="nonnegative")
    figure.update_layout(barmode="group", hovermode="closest")
    for i, (label_, values) in enumerate(sets.items()):
        arrays = [own.to_numpy() / scale for own in values]
        means = [float(own.mean()) if own.size else None for own in arrays]
        spread = [float(own.std(ddof=1)) if own.size > 1 else 0 for own in arrays]
        figure.add_trace(
            go.Bar(
                x=list(names),
                y=means,
                name=label_,
                marker={"color": COLOURS[i]},
                error_y={"type": "data", "array": spread, "thickness": 1.2},
                customdata=[own.size for own in arrays],
                hovertemplate="%{y:.4~g} ms, mean of %{customdata}",
            )
        )
    return figure


def of_runs(runs: Mapping[str, pl.DataFrame]) -> go.Figure:
    """Goodput, window and RTT of several runs, of which a menu shows one.

    Tables ``[flow, before_s, goodput_bps, snd_cwnd, srtt_us]``; ``before_s`` is negative.
    """
    rows = (
        ("goodput (Mbit/s)", "goodput_bps", 1e6),
        ("cwnd (segments)", "snd_cwnd", 1),
        ("RTT (ms)", "srtt_us", 1e3),
    )
    figure = make_subplots(rows=len(rows), cols=1, shared_xaxes=True, vertical_spacing=0.04)
    owners = []
    for number, (run, table) in enumerate(runs.items()):
        for i, ((flow,), own) in enumerate(table.group_by("flow", maintain_order=True)):
            for row, (_, column, scale) in enumerate(rows, start=1):
                shown = own.drop_nulls(column)
                if shown.is_empty():
                    continue
                line = {
                    "color": COLOURS[i % len(COLOURS)],
                    "width": 1.7,
                    "dash": DASHES[i // len(COLOURS) % len(DASHES)],
                }
                trace = go.Scatter(
                    x=shown["before_s"].round(3).to_list(),
                    y=(shown[column] / scale).to_list(),
                    name=str(flow),
                    legendgroup=str(flow),
                    showlegend=row == 1,
                    visible=number == 0,
                    line=line,
                    mode="lines",
                )
                figure.add_trace(trace, row=row, col=1)
                owners.append(run)
    picks = [
        {"label": run, "method": "update", "args": [{"visible": [owner == run for owner in owners]}]}
        for run in runs
    ]
    figure.update_layout(
        template="simple_white",
        font={"family": _FONT, "size": 13, "color": "#1a1c1f"},
        height=760,
        margin={"l": 70, "r": 16, "t": 84, "b": 46},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "bgcolor": "rgba(0,0,0,0)"},
        hovermode="x unified",
        updatemenus=[{"buttons": picks, "x": 0, "xanchor": "left", "y": 1.12, "yanchor": "bottom"}],
    )
    figure.update_xaxes(showgrid=True, gridcolor="#eceff2", zeroline=False)
    figure.update_xaxes(title_text="time before the last sample (s)", row=len(rows), col=1)
    for row, (title, _, _) in enumerate(rows, start=1):
        figure.update_yaxes(
            title_text=title, rangemode="tozero", gridcolor="#eceff2", showgrid=True, row=row, col=1
        )
    return figure
