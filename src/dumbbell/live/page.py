"""How the page looks: what is known of a run as components of Dash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import plotly.graph_objects as go
import polars as pl
from dash import dcc, html
from plotly.subplots import make_subplots
from tqdm import tqdm

from dumbbell.live.flows import Flows
from dumbbell.live.known import GOING, Known, PointNow
from dumbbell.report.figures.base import FONT, line_style
from dumbbell.units import human

REFRESH_MS = 2000
MOST_FLOWS = 40  # rows of the table, and lines of the figure
MOST_ENDED = 20  # rows of the table of ended points
MOST_REASONS = 8
MANY = 150  # points from which on their cells are small
MARKS = {"passed": "✓", "failed": "✗"} | dict.fromkeys(("invalid", "inconclusive", "aborted", "unknown"), "⚠")
GRAPH: Any = {"displaylogo": False, "displayModeBar": False, "responsive": True}

Component = Any


def layout() -> Component:
    """The empty page, with the places that are filled at each refresh."""
    return html.Main(
        [
            dcc.Interval(id="tick", interval=REFRESH_MS),
            dcc.Store(id="strip-shown"),
            html.Div(id="head"),
            html.Div(id="strip"),
            html.Div(dcc.Graph(id="figure", config=GRAPH), id="figure-place", hidden=True),
            html.Div(id="tables"),
        ]
    )


def problem(message: str) -> Component:
    """The page's head if there is no run to show."""
    return [html.H1("No run"), html.P(message, className="missing")]


def head(known: Known, flows: Flows, now_unix_ns: int) -> list[Component]:
    """Title, state, and the main numbers."""
    plan = known.shown.execution.plan
    about = [
        html.Span(["scenario ", html.B(plan.scenario)]),
        html.Span(["run ", html.Span(known.run.id, className="mono")]),
        *([html.Span("virtual time")] if known.virtual else []),
        html.Span(f"as of {_time(now_unix_ns)} UTC"),
        # The browser makes it anew at each refresh; it appears by itself if there is none for a while.
        html.Span("The server no longer answers.", key=str(now_unix_ns), className="stale"),
    ]
    reasons = [html.Li(reason) for reason in known.reasons[:MOST_REASONS]]
    if (more := len(known.reasons) - MOST_REASONS) > 0:
        reasons.append(html.Li(f"and {more} more, which the report lists"))
    said: list[Component] = [html.P(known.progress)] if known.progress else []
    if known.reasons:
        said.append(html.Ul(reasons))
    if known.state not in {*GOING, "planned"}:
        said.append(html.P(_report(known.run.dir.name, (known.run.dir / "report.html").exists())))
    return [
        html.H1(plan.title),
        html.P(about, className="meta"),
        html.Div(
            [html.Div(_marked(known.state), className="word"), html.Div(said)],
            className=f"verdict {known.state}",
        ),
        html.Div(list(_cards(known, flows)), className="cards"),
    ]


def _cards(known: Known, flows: Flows) -> Iterable[Component]:
    shown = known.shown.execution
    if known.run.sweeps:
        levels = shown.name.partition(": ")[2]
        yield _card("point", f"{known.shown.number} of {len(known.points)}", levels)
        judged = sum(point.judged for point in known.points)
        yield _card("ended points", str(judged), ", ".join(f"{n} {s}" for s, n in known.counts.items()))
    if known.left.how:
        seconds = known.left.seconds
        value = "not known" if seconds is None else str(tqdm.format_interval(round(seconds)))
        yield _card("time left", value, known.left.how)
    rates = [flow.goodput_bps for flow in flows.flows if flow.goodput_bps is not None]
    if rates:
        path = shown.point.path
        of = f"the bottleneck has {human(path.forward.rate_bps, 'bps')}" if path else ""
        yield _card("goodput of all flows", human(sum(rates), "bps"), of)
    for queue in flows.queues[:1]:
        yield _card("queue", f"{queue.packets} packets", f"of {queue.limit}, {queue.way}")


def strip(known: Known) -> list[Component]:
    """All points as cells in the order of the run, and how many are in which state."""
    if not known.run.sweeps:
        return []
    run = known.run.dir.name
    many = " many" if len(known.points) >= MANY else ""
    legend = [
        html.Span([html.I(className=f"cell {state}"), f"{number} {state}"])
        for state, number in known.counts.items()
    ]
    return [
        html.H2("Points"),
        html.Div([_cell(run, point) for point in known.points], className=f"strip{many}"),
        html.P(legend, className="note legend"),
    ]


def _cell(run: str, point: PointNow) -> Component:
    told = "\n".join([f"{point.execution.name}: {point.state}", *point.reasons[:MOST_REASONS]])
    about: dict[str, Any] = {"className": f"cell {point.state}", "title": told}
    if not point.judged:
        return html.Span(**about)
    return html.A(**about, href=_href(f"{run}/points/{point.execution.dir.name}"), target="_blank")


def tables(known: Known, flows: Flows) -> list[Component]:
    """Flows, queues, ended points and earlier runs."""
    rows: list[list[Component]]
    found: list[Component] = [html.H2(f"Flows of the {known.phase.phase}"), *_flows(flows)]
    if flows.queues:
        rows = [
            [queue.way, queue.device, queue.kind, human(queue.backlog_bytes), str(queue.packets), queue.limit,
             human(queue.drops)]
            for queue in flows.queues
        ]  # fmt: skip
        titles = ("direction", "device", "kind", "backlog (bytes)", "packets", "limit", "drops")
        found += [html.H2("Queue of the bottleneck"), _table(titles, rows)]
        found.append(_note("The longest of the last second, and packets dropped in the time of the figure."))
    if known.run.sweeps and known.ended:
        found += [html.H2("Points that have ended"), *_ended(known)]
    if known.before:
        rows = [
            [
                html.Span(each.listed.dir.name, className="mono"),
                _word(each.state),
                html.Span(each.why, className="why"),
                _report(each.listed.dir.name, each.listed.has_report),
            ]
            for each in known.before
        ]
        found += [html.H2("Runs before"), _table(("run", "verdict", "why", ""), rows)]
    return found


def _flows(flows: Flows) -> Iterable[Component]:
    datagrams = any(flow.lost is not None for flow in flows.flows)
    rows = [
        [
            flow.asked.name,
            f"{human(flow.asked.start_ns, 'ns')} to {human(flow.asked.end_ns, 'ns')}",
            flow.control or "-",
            human(flow.goodput_bps, "bps"),
            human(flow.cwnd),
            human(flow.rtt_ns, "ns"),
            human(flow.retransmissions),
            *([human(flow.lost)] if datagrams else []),
        ]
        for flow in flows.flows[:MOST_FLOWS]
    ]
    titles = ("flow", "planned", "control", "goodput", "cwnd (segments)", "RTT", "retransmissions")
    yield _table((*titles, *(("datagrams lost",) if datagrams else ())), rows)
    said = [flows.source] if flows.source else []
    if flows.last_ns:
        said.append(f"The last sample is of {_time(flows.last_ns)} UTC by the hosts' clocks.")
    if (more := len(flows.flows) - MOST_FLOWS) > 0:
        said.append(f"{more} more flows are not listed.")
    if said:
        yield _note(" ".join(said))
    for missing in flows.missing:
        yield html.P(missing, className="missing")


def _ended(known: Known) -> Iterable[Component]:
    ended = known.ended
    rows = [
        [
            point.execution.name,
            _word(point.state),
            html.Span("; ".join(point.reasons), className="why"),
            _report(f"{known.run.dir.name}/points/{point.execution.dir.name}", point.has_report),
        ]
        for point in ended[:MOST_ENDED]
    ]
    yield _table(("point", "verdict", "why", ""), rows)
    if (more := len(ended) - MOST_ENDED) > 0:
        yield _note(f"Those that have not passed first, then the latest. {more} more are cells above.")


def figure(flows: Flows) -> go.Figure:
    """Goodput of all flows, and below it the bottleneck's backlog, over the last minutes."""
    rows = 1 if flows.backlogs.is_empty() else 2
    drawn = make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.08,
                          row_heights=[0.6, 0.4] if rows > 1 else [1.0])  # fmt: skip
    named = [flow.asked.name for flow in flows.flows][:MOST_FLOWS]
    _lines(drawn, flows.series, named, 1e-6, row=1)
    if rows > 1:
        _lines(drawn, flows.backlogs, ["forward", "reverse"], 1e-3, row=2, prefix="queue, ", after=len(named))
        drawn.update_yaxes(title_text="backlog (kB)", row=2, col=1)
    drawn.update_layout(
        template="simple_white",
        font={"family": FONT, "size": 13, "color": "#1a1c1f"},
        height=320 if rows == 1 else 460,
        margin={"l": 70, "r": 16, "t": 34, "b": 46},
        hovermode="x unified",
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "bgcolor": "rgba(0,0,0,0)"},
        showlegend=True,
        uirevision=flows.run,  # what the reader has zoomed stays so
    )
    drawn.update_xaxes(showgrid=True, gridcolor="#eceff2", zeroline=False, tickangle=0, nticks=8)
    drawn.update_xaxes(title_text="time by the hosts' clocks (UTC)", row=rows, col=1)
    drawn.update_yaxes(rangemode="tozero", showgrid=True, gridcolor="#eceff2", tickformat="~g")
    drawn.update_yaxes(title_text="goodput (Mbit/s)", row=1, col=1)
    if flows.last_ns:
        since_ns = min([flows.last_ns, *flows.series["unix_ns"]])
        drawn.update_xaxes(range=[_date(since_ns), _date(flows.last_ns)])
    return drawn


def _lines(
    drawn: go.Figure,
    table: pl.DataFrame,
    names: Sequence[str],
    scale: float,
    *,
    row: int,
    prefix: str = "",
    after: int = 0,
) -> None:
    for place, name in enumerate(names):
        own = table.filter(name=name)
        if not own.is_empty():
            trace = go.Scatter(
                x=[_date(at) for at in own["unix_ns"]],
                y=(own["value"] * scale).to_list(),
                name=f"{prefix}{name}",
                mode="lines",
                line=line_style(place + after),
                hovertemplate="%{y:.4~g}",
            )
            drawn.add_trace(trace, row=row, col=1)


def _table(titles: Sequence[str], rows: Iterable[Sequence[Component]]) -> Component:
    made = html.Table(
        [
            html.Thead(html.Tr([html.Th(title) for title in titles])),
            html.Tbody([html.Tr([html.Td(cell) for cell in row]) for row in rows]),
        ]
    )
    return html.Div(made, className="table")


def _card(label: str, value: str, note: str) -> Component:
    parts = [
        html.Div(label, className="label"),
        html.Div(value, className="value"),
        html.Div(note, className="note"),
    ]
    return html.Div(parts, className="card")


def _note(text: str) -> Component:
    return html.P(text, className="note")


def _marked(state: str) -> str:
    return f"{MARKS.get(state, '…')} {state.upper()}"


def _word(state: str) -> Component:
    return html.Span(html.Span(_marked(state), className="word"), className=f"state {state}")


def _report(folder: str, written: bool) -> Component:
    return html.A("report", href=_href(folder), target="_blank") if written else "no report yet"


def _href(folder: str) -> str:
    return f"/runs/{quote(folder)}/report.html"


def _time(unix_ns: int) -> str:
    return f"{datetime.fromtimestamp(unix_ns / 1e9, UTC):%H:%M:%S}"


def _date(unix_ns: int) -> str:
    return (
        datetime.fromtimestamp(unix_ns / 1e9, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    )
