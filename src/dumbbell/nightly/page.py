"""Reports of nights: their page and feed, JUnit's XML of the last, and a finding in words."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from dumbbell import analysis
from dumbbell.compare.observed import changes
from dumbbell.nightly.history import Alarm, History, Series
from dumbbell.nightly.identity import in_words
from dumbbell.nightly.judge import settled
from dumbbell.report import html
from dumbbell.report.curve import Curve, Mark
from dumbbell.run.directory import time_of
from dumbbell.run.record import read_json
from dumbbell.suite import NOT_RUN
from dumbbell.units import human

NIGHTS = 30  # columns of the matrix
MARK = {0: "passed", 1: "failed", 2: "invalid"}
TOLD = ("new", "recovered", "gone", "redefined")  # states of findings that the feed has
Json = Mapping[str, Any]


class Row(NamedTuple):
    """Series of the same metric of the same point: in one curve, what it can show, and what has changed."""

    scenario: str
    point: str
    metric: str
    curve: Curve
    last: str
    variation: str
    shows: str
    notes: list[str]


class AlarmRow(NamedTuple):
    """An open alarm: the change with its interval, since when with what under test, and the evidence."""

    point: str
    metric: str
    change: str
    since: str
    evidence: str


def told_nights(home: Path) -> list[Json]:
    """What each night below ``home`` that has ended told, the oldest first."""
    return [told for path in sorted(home.glob("nights/*/night.json")) if (told := read_json(path))]


def render(home: Path, history: History) -> Path:
    """Write ``index.html`` of all nights below ``home``; return its path."""
    nights = told_nights(home)
    alarms, series = history.alarms(), history.series()
    newest_first = nights[: -NIGHTS - 1 : -1]
    text = html.page(
        "nights.html",
        title="Nights",
        suite=nights[-1]["suite"] if nights else home.name,
        last=nights[-1] if nights else None,
        state=MARK[nights[-1]["status"]] if nights else "",
        said=_said(nights[-1]) if nights else [],
        nights=[(night["night"], _date(night["night"])) for night in newest_first],
        alarms=list(_alarms(series, alarms, history)),
        not_run=_not_run(nights[-1]) if nights else [],
        matrix=_matrix(newest_first),
        series=[_series(of, alarms, history) for of in _together(series, alarms)],
    )
    target = home / "index.html"
    target.write_text(text)
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


def atom(nights: Sequence[Json]) -> bytes:
    """A feed (RFC 4287) of the findings of nights that opened or closed an alarm, the newest night first."""
    feed = ET.Element("feed", xmlns="http://www.w3.org/2005/Atom")

    def add(parent: ET.Element, name: str, text: str = "", **attributes: str) -> ET.Element:
        child = ET.SubElement(parent, name, attributes)
        child.text = text or None
        return child

    suite = nights[-1]["suite"]
    add(feed, "title", f"Nights of {suite}")
    add(feed, "id", f"urn:dumbbell:nights:{quote(suite)}")
    add(feed, "updated", time_of(nights[-1]["night"]).isoformat())
    add(add(feed, "author"), "name", "Dumbbell")
    for night in nights[: -NIGHTS - 1 : -1]:
        for found in night["findings"]:
            if found["state"] in TOLD:
                entry = add(feed, "entry")
                key = ":".join(
                    quote(found[name], safe="") for name in ("point", "metric", "subject", "since")
                )
                add(entry, "title", f"{found['state']}: {found['metric']} of {found['scenario']}")
                add(entry, "id", f"urn:dumbbell:{night['night']}:{key}")
                add(entry, "updated", time_of(night["night"]).isoformat())
                add(entry, "link", href="index.html")
                add(entry, "summary", sentence(found))
    return bytes(ET.tostring(feed, encoding="utf-8", xml_declaration=True))


def sentence(found: Json) -> str:
    """A finding in words: what has changed, by how much, with what under test, and what confirmed it.

    Findings of older versions have fewer keys.
    """
    unit = found["unit"]
    change = f"{human(found['before'], unit)} to {human(found['after'], unit)}"
    if found["effect"] is not None:
        change += f", {found['effect']:+.1%}{_interval(found)}"
    point = "" if found["label"] == "-" else f"{found['label']} of "  # "-": the scenario has one point
    what = f"{found['metric']} of {found['subject']}, {point}{found['scenario']}"
    with_ = f" with {found['tested']}" if found.get("tested") else ""
    notes = [f"confirmed by {found['evidence']}"] if found.get("evidence") else []
    notes += [f"Dumbbell: {found['instrument']}"] if found.get("instrument") else []
    notes += filter(None, [found["reason"]])
    return f"{found['state']}: {what}: {change} since {found['since']}{with_}" + "".join(
        f"; {n}" for n in notes
    )


def _interval(found: Json) -> str:
    """The interval of a change relative to the former value, empty if it is not known."""
    if found.get("low") is None or not found["before"]:
        return ""
    low, high = sorted(found[end] / abs(found["before"]) for end in ("low", "high"))
    return f" (95 % CI {low:+.1%}..{high:+.1%})"


def _said(night: Json) -> list[str]:
    """What a night found, in words; what it did not run is told beside."""
    said = [sentence(found) for found in night["findings"]]
    said += [
        f"{run['state']}: {run['scenario']}: {reason}"
        for run in night["runs"]
        for reason in run["reasons"]
        if run["state"] not in ("passed", NOT_RUN)
    ]
    return said


def _not_run(night: Json) -> list[str]:
    """What a night did not run, and why."""
    return [
        f"{' '.join(filter(None, (run['scenario'], run['profile'])))}: {'; '.join(run['reasons'])}"
        for run in night["runs"]
        if run["state"] == NOT_RUN
    ]


def _alarms(series: Iterable[Series], alarms: Iterable[Alarm], history: History) -> Iterator[AlarmRow]:
    """Open alarms, also those of a testbed that is no longer there."""
    known = {one.key: one for one in series}
    for alarm in alarms:
        if alarm.closed is None and (one := known.get(alarm.key)):
            change = f"{human(alarm.before, one.unit)} to {human(alarm.after, one.unit)}"
            if alarm.low is not None and alarm.high is not None:
                change += f" ({human(alarm.low, one.unit)} to {human(alarm.high, one.unit)})"
            tested = _tested(one, history).get(alarm.since, "")
            yield AlarmRow(
                f"{one.scenario}, {one.label}",
                f"{one.key.metric} of {one.key.subject}",
                change,
                _date(alarm.since) + (f", {tested}" if tested else ""),
                alarm.evidence,
            )


def _tested(series: Series, history: History) -> dict[str, str]:
    """The nights in which something else was under test than before, and what has changed, in words."""
    return {
        night: in_words(changes(history.conditions(old), history.conditions(new)))
        for night, (old, new) in zip(series.nights[1:], pairwise(series.tested), strict=True)
        if old != new
    }


def _matrix(nights: Sequence[Json]) -> list[tuple[str, list[tuple[str, Json | None]]]]:
    """Each scenario and profile, with each night's name and run of it; the newest night first."""
    runs_of = (run for night in reversed(nights) for run in night["runs"])
    names = dict.fromkeys((run["scenario"], run["profile"]) for run in runs_of)
    rows = []
    for scenario, profile in names:
        cells = []
        for night in nights:
            runs = {(run["scenario"], run["profile"]): run for run in night["runs"]}
            cells.append((str(night["night"]), runs.get((scenario, profile))))
        rows.append((" ".join(filter(None, (Path(scenario).stem, profile))), cells))
    return rows


def _together(series: Iterable[Series], alarms: Sequence[Alarm]) -> list[list[Series]]:
    """Series of the same metric of the same point, one for each testbed in turn; those with alarms first."""
    alarmed = {alarm.key for alarm in alarms}
    groups: dict[tuple[str, ...], list[Series]] = {}
    for one in sorted(series, key=lambda one: one.nights[0]):
        groups.setdefault((one.scenario, one.label, one.key.metric, one.key.subject), []).append(one)
    order = sorted(groups, key=lambda name: (not any(one.key in alarmed for one in groups[name]), name))
    return [groups[name] for name in order]


def _series(of: Sequence[Series], alarms: Sequence[Alarm], history: History) -> Row:
    """A row: the series of all testbeds as one curve, the smallest visible change, and its changes."""
    last = of[-1]
    marks, notes = [], []
    for before, one in zip((None, *of), of, strict=False):
        own = [alarm for alarm in alarms if alarm.key == one.key]
        tested = _tested(one, history)
        edges = dict.fromkeys(tested, "tested")
        edges |= {night: "change" for alarm in own for night in (alarm.since, _undone(alarm)) if night}
        if before is not None:
            edges[one.nights[0]] = "testbed"
            changed = in_words(history.differ(before.key, one.key))
            notes.append(f"Another testbed since {_date(one.nights[0])}: {changed}.")
        for night, value, run in zip(one.nights, one.medians, one.runs, strict=True):
            href = quote(f"nights/{night}/{Path(run).name}/report.html")
            said = ", ".join(filter(None, (f"{night}: {human(value, one.unit)}", tested.get(night))))
            marks.append(Mark(value, said, href=href, edge=edges.get(night, "")))
        notes += [f"Since {_date(night)} {told}." for night, told in tested.items()]
        for alarm in own:
            change = f"{human(alarm.before, one.unit)} to {human(alarm.after, one.unit)}"
            end = f", {alarm.how} {_date(alarm.closed)}" if alarm.closed else ", open"
            notes.append(f"Since {_date(alarm.since)} {change}{end}.")
    expected = settled(last, [alarm for alarm in alarms if alarm.key == last.key]).medians
    return Row(
        last.scenario,
        last.label,
        f"{last.key.metric} of {last.key.subject}",
        Curve(marks[-NIGHTS:], 360),
        human(last.medians[-1], last.unit),
        human(analysis.variation(expected), "share"),
        human(analysis.detectable(expected), "share"),
        notes,
    )


def _undone(alarm: Alarm) -> str | None:
    return alarm.back if alarm.how == "recovered" else None


def _date(night: str) -> str:
    return f"{night[:4]}-{night[4:6]}-{night[6:8]}"
