"""What is said of nights: a page with all of them, JUnit's XML of the last, and its JSON."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from urllib.parse import quote

import plotly.graph_objects as go

from dumbbell import analysis
from dumbbell.nightly.history import Alarm, History, Series
from dumbbell.report import html, show
from dumbbell.rundir import read_json
from dumbbell.units import human

NIGHTS = 30  # columns of the matrix
MARK = {0: "passed", 1: "failed", 2: "invalid"}
Json = Mapping[str, Any]


def render(home: Path, history: History) -> Path:
    """Write ``index.html`` of all nights below ``home``; return its path."""
    nights = [told for path in sorted(home.glob("nights/*/night.json")) if (told := read_json(path))]
    alarms = history.alarms()
    body = "".join(
        (
            html.assets(),
            f"<h1>Nights of {escape(str(nights[-1]['suite']) if nights else home.name)}</h1>",
            _last(nights),
            _matrix(nights[-NIGHTS:]),
            "<h2>Series</h2>",
            *(_series(of, alarms, history) for of in _together(history.series(), alarms)),
        )
    )
    target = home / "index.html"
    target.write_text(html.page("Nights", body))
    return target


def junit(night: Json) -> bytes:
    """The last night for systems of continuous integration: a case for each run and each finding."""
    suite = ET.Element("testsuite", name=str(night["suite"]), timestamp=str(night["night"]))
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}

    def case(group: str, name: str, kind: str | None, text: str) -> None:
        counts["tests"] += 1
        element = ET.SubElement(suite, "testcase", classname=group, name=name)
        if kind is not None:
            counts[{"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]] += 1
            ET.SubElement(element, kind, message=text)

    kinds = {"passed": None, "failed": "failure", "not run": "skipped"}
    for run in night["runs"]:
        name = " ".join(filter(None, (run["scenario"], run["profile"])))
        case(str(night["suite"]), name, kinds.get(run["state"], "error"), "; ".join(run["reasons"]))
    for found in night["findings"]:
        name = f"{found['label']} {found['metric']} {found['subject']}"
        alarm = found["worse"] and found["state"] in ("new", "open")
        case(found["scenario"], name, "failure" if alarm else None, sentence(found))
    for key, count in counts.items():
        suite.set(key, str(count))
    return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))


def sentence(found: Json) -> str:
    """A finding in words."""
    unit = found["unit"]
    change = f"{human(found['before'], unit)} to {human(found['after'], unit)}, {found['effect']:+.1%}"
    what = f"{found['metric']} of {found['subject']}, {found['label']} of {found['scenario']}"
    reason = f": {found['reason']}" if found["reason"] else ""
    return f"{found['state']}: {what}: {change} since {found['since']}{reason}"


def _last(nights: Sequence[Json]) -> str:
    if not nights:
        return "<p>No night has ended yet.</p>"
    night = nights[-1]
    said = [sentence(found) for found in night["findings"]]
    said += [
        f"{run['state']}: {run['scenario']}: {reason}"
        for run in night["runs"]
        for reason in run["reasons"]
        if run["state"] != "passed"
    ]
    items = "".join(f"<li>{escape(text)}</li>" for text in said) or "<li>All as before.</li>"
    return html.verdict_box(MARK[night["status"]], f"<b>{escape(night['night'])}</b><ul>{items}</ul>")


def _matrix(nights: Sequence[Json]) -> str:
    names = list(
        dict.fromkeys((run["scenario"], run["profile"]) for night in nights for run in night["runs"])
    )
    rows = []
    for scenario, profile in names:
        cells = [escape(" ".join(filter(None, (Path(scenario).stem, profile))))]
        for night in nights:
            runs = {(run["scenario"], run["profile"]): run for run in night["runs"]}
            cells.append(_cell(night, runs.get((scenario, profile))))
        rows.append(html.row(cells))
    return f"<h2>Runs</h2>{html.table(['', *(escape(n['night'][:13]) for n in nights)], rows)}"


def _cell(night: Json, run: Json | None) -> str:
    if run is None:
        return ""
    if run["directory"] is None:
        return escape(run["state"])
    target = f"nights/{night['night']}/{run['directory']}/report.html"
    return f'<a href="{quote(target)}">{html.word(run["state"])}</a>'


def _together(series: Iterable[Series], alarms: Sequence[Alarm]) -> list[list[Series]]:
    """Series of the same metric of the same point, one for each testbed in turn; those with alarms first."""
    alarmed = {alarm.key for alarm in alarms}
    groups: dict[tuple[str, ...], list[Series]] = {}
    for one in sorted(series, key=lambda one: one.nights[0]):
        groups.setdefault((one.scenario, one.label, one.key.metric, one.key.subject), []).append(one)
    return [
        of
        for _, of in sorted(
            groups.items(), key=lambda item: (not any(one.key in alarmed for one in item[1]), item[0])
        )
    ]


def _series(of: Sequence[Series], alarms: Sequence[Alarm], history: History) -> str:
    last = of[-1]
    own = [alarm for alarm in alarms if alarm.key in [one.key for one in of]]
    figure = go.Figure()
    for one in of:
        nights = [_time(night) for night in one.nights]
        figure.add_scatter(
            x=nights, y=list(one.medians), mode="lines+markers", name=f"testbed {one.key.fingerprint}"
        )
    notes = []
    for before, one in pairwise(of):
        figure.add_vline(x=_time(one.nights[0]), line_color="grey")
        changed = _changed(history.testbed(before.key.fingerprint), history.testbed(one.key.fingerprint))
        notes.append(f"Another testbed since {one.nights[0]}, not compared with the one before: {changed}.")
    for alarm in own:
        figure.add_vline(x=_time(alarm.since), line_dash="dot", line_color="red")
        levels = f"{human(alarm.before, last.unit)} to {human(alarm.after, last.unit)}"
        notes.append(f"{(alarm.how or 'open').capitalize()} since {alarm.since}: {levels}.")
    figure.update_layout(height=220, margin={"l": 60, "r": 10, "t": 10, "b": 30}, showlegend=False)
    figure.update_yaxes(title=last.unit)
    title = f"{last.scenario}: {last.label}: {last.key.metric} of {last.key.subject}"
    shown = show(figure, escape(" ".join([_noise(last.medians), *notes])))
    return f"<details{' open' if own else ''}><summary>{escape(title)}</summary>{shown}</details>"


def _noise(values: Sequence[float]) -> str:
    if len(values) < 2 or not mean(values):  # noqa: PLR2004
        return f"{len(values)} nights."
    spread, least = stdev(values) / abs(mean(values)), analysis.detectable(values)
    return (
        f"{len(values)} nights. Coefficient of variation {human(spread, 'share')}; the smallest change that "
        f"as many nights show: {human(least, 'share')}."
    )


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return "; ".join(f"{name} {before.get(name, 'none')} to {after.get(name, 'none')}" for name in names)


def _time(night: str) -> datetime:
    return datetime.strptime(night, "%Y%m%dT%H%M%SZ")
