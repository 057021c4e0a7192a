"""Write the Grafana dashboards in ``dashboards/`` (``make docs``): the panels below, in Grafana's JSON.

Queries are InfluxQL, which InfluxDB 1.8 speaks, 2.x for databases that are mapped to buckets, and 3.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dumbbell.metrics.registry import METRICS
from dumbbell.nightly.tell import ANNOTATION, VALUE

FOLDER = Path(__file__).parents[1] / "dashboards"
SOURCE = {"type": "influxdb", "uid": "${source}"}
WIDTH, HEIGHT = 12, 8  # of a panel, on a grid of 24 columns
LEAST_INTERVAL = "10ms"  # of a point on the screen: agents may sample so often
SCHEMA = 39  # of the format, that of Grafana 11; newer versions read it


@dataclass(frozen=True)
class Panel:
    """A figure over time, or a table. ``unit`` is Grafana's name of it; ``legend`` has ``$tag_NAME``."""

    title: str
    unit: str
    legend: str
    query: str
    what: str
    kind: Literal["timeseries", "table"] = "timeseries"


@dataclass(frozen=True)
class Dashboard:
    """Panels with the variables that their queries have, by name: each lists the values of a query."""

    title: str
    panels: tuple[Panel, ...]
    variables: dict[str, str]
    since: str = "now-15m"
    refresh: str = "5s"
    annotations: dict[str, str] = field(default_factory=dict)  # queries of title and text, by name
    looks: dict[str, Any] = field(default_factory=lambda: {"min": 0})  # of all figures
    points: Literal["always", "never"] = "never"


def _of_run(select: str, measurement: str, by: str, where: str = "", *, every: str = "$__interval") -> str:
    """A query of the rows of the selected run; ``by`` has tags with commas between them."""
    only = f" AND {where}" if where else ""
    return (
        f'SELECT {select} FROM "{measurement}" WHERE "run" =~ /^$run$/{only} AND $timeFilter '
        f"GROUP BY time({every}), {by} fill(none)"
    )


SENDER = '"side" = \'sender\' AND "stream" =~ /./'
FLOW, DEVICE = '"flow", "stream"', '"host", "dev", "kind", "handle"'
OF_FLOW, OF_DEVICE = "$tag_flow $tag_stream", "$tag_host $tag_dev $tag_kind"

RUN = (
    Panel(
        "Goodput",
        "bps",
        OF_FLOW,
        _of_run('8 * non_negative_derivative(max("bytes_acked"), 1s)', "tcp_info", FLOW, SENDER),
        "Growth of bytes_acked of each sender.",
    ),
    Panel(
        "Congestion window",
        "none",
        OF_FLOW,
        _of_run('last("snd_cwnd")', "tcp_info", FLOW, SENDER),
        "snd_cwnd of each sender, in segments.",
    ),
    Panel(
        "Smoothed RTT",
        "µs",
        OF_FLOW,
        _of_run('mean("srtt_us")', "tcp_info", FLOW, SENDER),
        "srtt_us of each sender.",
    ),
    Panel(
        "Retransmitted segments",
        "none",
        OF_FLOW,
        _of_run('non_negative_difference(max("total_retrans"))', "tcp_info", FLOW, SENDER),
        "Growth of total_retrans of each sender.",
    ),
    Panel(
        "Queues",
        "none",
        OF_DEVICE,
        _of_run('max("qlen_packets")', "qdisc", DEVICE),
        "The longest queue of each interval, in packets.",
    ),
    Panel(
        "Drops of queues",
        "none",
        OF_DEVICE,
        _of_run('non_negative_difference(max("drops"))', "qdisc", DEVICE),
        "Growth of drops of each qdisc, in packets.",
    ),
    Panel(
        "Segments in flight",
        "none",
        OF_FLOW,
        _of_run('last("unacked")', "tcp_info", FLOW, SENDER),
        "unacked of each sender.",
    ),
    Panel(
        "UDP received",
        "bps",
        "$tag_flow",
        _of_run(
            '8 * non_negative_derivative(max("received_bytes"), 1s)', "udp", '"flow"', "\"side\" = 'receiver'"
        ),
        "Payload of datagrams, at each receiver.",
    ),
)
TESTBED = (
    Panel(
        "Idle time of cores",
        "percentunit",
        "$tag_host core $tag_cpu",
        _of_run(
            'non_negative_derivative(max("idle_ms"), 1s) / 1000', "cpu_core", '"host", "cpu"', every="2s"
        ),
        "A core that is never idle may limit a flow.",
    ),
    Panel(
        "Received by interfaces",
        "bps",
        "$tag_host $tag_dev",
        _of_run('8 * non_negative_derivative(max("rx_bytes"), 1s)', "link", '"host", "dev"', every="2s"),
        "rx_bytes of each interface.",
    ),
    Panel(
        "Dropped by interfaces",
        "none",
        "$tag_host $tag_dev",
        _of_run('non_negative_difference(max("rx_dropped"))', "link", '"host", "dev"', every="2s"),
        "rx_dropped of each interface.",
    ),
    Panel(
        "Frequency of clocks",
        "none",
        "$tag_host $tag_source",
        _of_run('last("frequency_ppb")', "clock", '"host", "source"', every="2s"),
        "The correction of each clock, in billionths.",
    ),
)
COLLECTORS = (
    Panel(
        "Achieved sampling interval",
        "ns",
        "$tag_host",
        _of_run('last("achieved_interval_ns")', "sampler", '"host"', every="2s"),
        "Mean time between samples so far.",
    ),
    Panel(
        "Missed samples",
        "none",
        "$tag_host",
        _of_run('max("missed")', "sampler", '"host"', every="2s"),
        "Ticks without a sample so far.",
    ),
    Panel(
        "Latest sample",
        "ns",
        "$tag_host",
        _of_run('max("late_max_ns")', "sampler", '"host"', every="2s"),
        "How late the latest sample was.",
    ),
    Panel(
        "Rows of TCP_INFO",
        "none",
        "$tag_host",
        _of_run('count("mono_ns")', "tcp_info", '"host"', every="2s"),
        "Rows that came into the database in two seconds.",
    ),
)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


CHOSEN = '"scenario" =~ /^$scenario$/ AND "label" =~ /^$label$/'
UNITS = {"bps": "bps", "ns": "ns", "share": "percentunit", "": "none"}  # of metrics, in Grafana
NIGHTS = (
    *(
        Panel(
            f"{metric.title[0].upper()}{metric.title[1:]}",
            UNITS[metric.unit],
            "$tag_label $tag_subject $tag_metric",
            f'SELECT "value" FROM "{VALUE}" WHERE "metric" =~ /^{metric.name}( p[0-9]+)?$/ AND {CHOSEN} AND '
            f'$timeFilter GROUP BY "label", "subject", "metric", "point", "testbed", "definition"',
            f"{_first_line(metric.what)} The median of each night. Another testbed has another line.",
        )
        for metric in METRICS.values()
        if metric.compared
    ),
    Panel(
        "Changes",
        "none",
        "",
        f'SELECT "subject", "metric", "state", "text" FROM "{ANNOTATION}" '
        'WHERE "scenario" =~ /^$scenario$/ AND $timeFilter ORDER BY time DESC',
        "Changes that nights have found, at the night in which each began.",
        kind="table",
    ),
)
RUNS = {"run": 'SHOW TAG VALUES WITH KEY = "run"'}
DASHBOARDS = {
    "run": Dashboard("Dumbbell: a run", RUN, RUNS),
    "testbed": Dashboard("Dumbbell: the testbed", TESTBED, RUNS),
    "collectors": Dashboard("Dumbbell: collectors", COLLECTORS, RUNS),
    "nights": Dashboard(
        "Dumbbell: nights",
        NIGHTS,
        {
            "scenario": f'SHOW TAG VALUES FROM "{VALUE}" WITH KEY = "scenario"',
            "label": f'SHOW TAG VALUES FROM "{VALUE}" WITH KEY = "label" WHERE "scenario" =~ /^$scenario$/',
        },
        since="now-90d",
        refresh="",
        annotations={
            "changes": f'SELECT "title", "text", "subject", "metric" FROM "{ANNOTATION}" '
            'WHERE "scenario" =~ /^$scenario$/ AND $timeFilter'
        },
        looks={},
        points="always",
    ),
}
ALL = ("label",)  # variables that may have all of their values


def dashboard(name: str, of: Dashboard) -> dict[str, Any]:
    """A dashboard as Grafana imports it: it asks for the data source, and for what its variables choose."""
    source = {
        "name": "source",
        "label": "InfluxDB",
        "type": "datasource",
        "query": "influxdb",
        # That which the role grafana provisions; without it the first one.
        "current": {"text": "Dumbbell", "value": "dumbbell"},
    }
    variables = [_variable(variable, query) for variable, query in of.variables.items()]
    return {
        "uid": f"dumbbell-{name}",
        "title": of.title,
        "tags": ["dumbbell"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,  # one cross hair in all panels
        "refresh": of.refresh,
        "time": {"from": of.since, "to": "now"},
        "timezone": "utc",
        "templating": {"list": [source, *variables]},
        "annotations": {"list": [_annotation(*one) for one in of.annotations.items()]},
        "panels": [_panel(number, panel, of) for number, panel in enumerate(of.panels)],
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    found = {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "definition": query,
        "refresh": 2,  # with the time range
        "sort": 6 if name == "run" else 5,  # runs: the newest first, whose name begins with the latest date
    }
    if name in ALL:
        found |= {"includeAll": True, "multi": True, "allValue": ".*"}
        found |= {"current": {"text": ["All"], "value": ["$__all"]}}
    return found


def _annotation(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "enable": True,
        "iconColor": "red",
        "datasource": SOURCE,
        "target": {
            "refId": "annotation",
            "query": query,
            "rawQuery": True,
            "fromAnnotations": True,
            "textEditor": True,
            "titleColumn": "title",
            "textColumn": "text",
            "tagsColumn": "subject,metric",
        },
    }


def _panel(number: int, panel: Panel, of: Dashboard) -> dict[str, Any]:
    target = {
        "refId": "A",
        "datasource": SOURCE,
        "rawQuery": True,
        "resultFormat": "time_series" if panel.kind == "timeseries" else "table",
        "query": panel.query,
        "alias": panel.legend,
    }
    width = WIDTH if panel.kind == "timeseries" else 2 * WIDTH
    made: dict[str, Any] = {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.what,
        "datasource": SOURCE,
        "interval": LEAST_INTERVAL,
        "gridPos": {"x": number % 2 * WIDTH, "y": number // 2 * HEIGHT, "w": width, "h": HEIGHT},
    }
    if panel.kind == "timeseries":
        custom = {"lineWidth": 1, "showPoints": of.points}
        made |= {
            "fieldConfig": {
                "defaults": {"unit": panel.unit} | of.looks | {"custom": custom},
                "overrides": [],
            },
            "options": {
                "legend": {"displayMode": "list", "placement": "bottom"},
                "tooltip": {"mode": "multi", "sort": "desc"},
            },
        }
    return made | {"targets": [target]}


def text(name: str) -> str:
    """The file of one of :data:`DASHBOARDS`."""
    return json.dumps(dashboard(name, DASHBOARDS[name]), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (FOLDER / f"{each}.json").write_text(text(each))
