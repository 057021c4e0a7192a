"""Reports of nights: the page with all of them, JUnit's XML of the last, and the words of a finding."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from urllib.parse import quote

from dumbbell import analysis
from dumbbell.compare.observed import NONE, Change
from dumbbell.nightly.history import Alarm, History, Series
from dumbbell.nightly.judge import settled
from dumbbell.report import html
from dumbbell.run.directory import read_json
from dumbbell.units import human

NIGHTS = 30  # columns of the matrix
MARK = {0: "passed", 1: "failed", 2: "invalid"}
SERIES = ("point", "metric", "nights", "last", "variation", "shows", "")
NOTE = (
    "Medians of each night. A grey line marks the begin of another testbed, with which nothing is compared; "
    "a dashed line marks a confirmed change. Variation is the coefficient of variation of the nights with "
    "the expected level; the column shows has the smallest change that as many more nights can show."
)
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
            html.table(SERIES, (_series(of, alarms, history) for of in _together(history.series(), alarms))),
            f'<p class="note">{NOTE}</p>',
        )
    )
    target = home / "index.html"
    target.write_text(html.page("Nights", body))
    return target


def junit(night: Json) -> bytes:
    """The last night for continuous integration: a test case for each run and each finding."""
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
        case(found["scenario"], name, "failure" if found["alarm"] else None, sentence(found))
    for key, count in counts.items():
        suite.set(key, str(count))
    return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))


def sentence(found: Json) -> str:
    """A finding in words."""
    unit = found["unit"]
    change = f"{human(found['before'], unit)} to {human(found['after'], unit)}"
    if found["effect"] is not None:
        change += f", {found['effect']:+.1%}"
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
    """Scenarios by nights, the newest first."""
    names = dict.fromkeys((run["scenario"], run["profile"]) for night in nights for run in night["runs"])
    rows = []
    for scenario, profile in names:
        cells = [escape(" ".join(filter(None, (Path(scenario).stem, profile))))]
        for night in reversed(nights):
            runs = {(run["scenario"], run["profile"]): run for run in night["runs"]}
            cells.append(_cell(night, runs.get((scenario, profile))))
        rows.append(html.row(cells))
    head = (f'<time title="{night["night"]}">{_date(night["night"])}</time>' for night in reversed(nights))
    return f"<h2>Runs</h2>{html.table(['', *head], rows)}"


def _cell(night: Json, run: Json | None) -> str:
    if run is None:
        return ""
    if run["directory"] is None:
        return f'<span title="{escape("; ".join(run["reasons"]))}">{escape(run["state"])}</span>'
    target = f"nights/{night['night']}/{run['directory']}/report.html"
    return f'<a href="{quote(target)}">{html.word(run["state"])}</a>'


def _together(series: Iterable[Series], alarms: Sequence[Alarm]) -> list[list[Series]]:
    """Series of the same metric of the same point, one for each testbed in turn; those with alarms first."""
    alarmed = {alarm.key for alarm in alarms}
    groups: dict[tuple[str, ...], list[Series]] = {}
    for one in sorted(series, key=lambda one: one.nights[0]):
        groups.setdefault((one.scenario, one.label, one.key.metric, one.key.subject), []).append(one)
    order = sorted(groups, key=lambda name: (not any(one.key in alarmed for one in groups[name]), name))
    return [groups[name] for name in order]


def _series(of: Sequence[Series], alarms: Sequence[Alarm], history: History) -> str:
    """A row: the series of all testbeds as one curve, the smallest visible change, and its changes."""
    last = of[-1]
    marks, notes = [], []
    for before, one in zip((None, *of), of, strict=False):
        own = [alarm for alarm in alarms if alarm.key == one.key]
        edges = {night: "change" for alarm in own for night in (alarm.since, _undone(alarm)) if night}
        if before is not None:
            edges[one.nights[0]] = "testbed"
            changed = _changed(history.differ(before.key.fingerprint, one.key.fingerprint))
            notes.append(f"Another testbed since {_date(one.nights[0])}: {changed}.")
        for night, value, run in zip(one.nights, one.medians, one.runs, strict=True):
            href = quote(f"nights/{night}/{Path(run).name}/report.html")
            marks.append(
                html.Mark(value, f"{night}: {human(value, one.unit)}", href=href, edge=edges.get(night, ""))
            )
        for alarm in own:
            change = f"{human(alarm.before, one.unit)} to {human(alarm.after, one.unit)}"
            end = f", {alarm.how} {_date(alarm.closed)}" if alarm.closed else ", open"
            notes.append(f"Since {_date(alarm.since)} {change}{end}.")
    expected = settled(last, [alarm for alarm in alarms if alarm.key == last.key]).medians
    spread = stdev(expected) / abs(mean(expected)) if len(expected) > 1 and mean(expected) else None
    cells = (
        f"{escape(last.scenario)}<br>{escape(last.label)}",
        escape(f"{last.key.metric} of {last.key.subject}"),
        html.curve(marks[-NIGHTS:], 360),
        escape(human(last.medians[-1], last.unit)),
        human(spread, "share"),
        human(analysis.detectable(expected), "share"),
        f'<span class="why">{escape(" ".join(notes))}</span>' if notes else "",
    )
    return html.row(cells)


def _undone(alarm: Alarm) -> str | None:
    return alarm.closed if alarm.how == "recovered" else None


def _changed(found: Iterable[Change]) -> str:
    return "; ".join(f"{one.name} {one.before or NONE} to {one.after or NONE}" for one in found)


def _date(night: str) -> str:
    return f"{night[:4]}-{night[4:6]}-{night[6:8]}"
