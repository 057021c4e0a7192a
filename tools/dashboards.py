"""Write the Grafana dashboards in ``dashboards/`` (``make docs``): the panels below, in Grafana's JSON.

Queries are InfluxQL, which InfluxDB 1.8 speaks, and 2.x for databases that are mapped to buckets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "dashboards"
SOURCE = {"type": "influxdb", "uid": "${source}"}
WIDTH, HEIGHT = 12, 8  # of a panel, on a grid of 24 columns
LEAST_INTERVAL = "10ms"  # of a point on the screen: agents may sample so often
SCHEMA = 39  # of the format, that of Grafana 11; newer versions read it


@dataclass(frozen=True)
class Panel:
    """A figure over time. ``unit`` is Grafana's name of it; ``legend`` has ``$tag_NAME``."""

    title: str
    unit: str
    legend: str
    query: str
    what: str


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
DASHBOARDS = {
    "run": ("Dumbbell: a run", RUN),
    "testbed": ("Dumbbell: the testbed", TESTBED),
    "collectors": ("Dumbbell: collectors", COLLECTORS),
}
RUNS = 'SHOW TAG VALUES WITH KEY = "run"'


def dashboard(name: str, title: str, panels: Sequence[Panel]) -> dict[str, Any]:
    """A dashboard as Grafana imports it: it asks for the data source and the run."""
    source = {"name": "source", "label": "InfluxDB", "type": "datasource", "query": "influxdb"}
    run = {
        "name": "run",
        "label": "run",
        "type": "query",
        "datasource": SOURCE,
        "query": RUNS,
        "definition": RUNS,
        "refresh": 2,  # with the time range
        "sort": 6,  # the newest first, whose name begins with the latest date
    }
    return {
        "uid": f"dumbbell-{name}",
        "title": title,
        "tags": ["dumbbell"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,  # one cross hair in all panels
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "timezone": "utc",
        "templating": {"list": [source, run]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    target = {
        "refId": "A",
        "datasource": SOURCE,
        "rawQuery": True,
        "resultFormat": "time_series",
        "query": panel.query,
        "alias": panel.legend,
    }
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.what,
        "datasource": SOURCE,
        "interval": LEAST_INTERVAL,
        "gridPos": {"x": number % 2 * WIDTH, "y": number // 2 * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"lineWidth": 1, "showPoints": "never"}},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [target],
    }


def text(name: str) -> str:
    """The file of one of :data:`DASHBOARDS`."""
    return json.dumps(dashboard(name, *DASHBOARDS[name]), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (FOLDER / f"{each}.json").write_text(text(each))
