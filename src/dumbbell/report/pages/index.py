"""``index.html`` of a directory of runs: all of them by scenario, the newest first.

Made from what runs leave that is small: verdicts, states, the table of flows. A directory that is broken, or
whose run has not ended, is listed as what it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from html import escape
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import quote

import polars as pl
from filelock import FileLock
from pydantic import BaseModel

from dumbbell import analysis
from dumbbell.metrics.registry import title
from dumbbell.report import html
from dumbbell.run.content import dig
from dumbbell.run.directory import Event, point_folders, read_json, read_jsonl, time_of
from dumbbell.units import human

NEWEST = 20  # runs of a scenario that are shown at once; older ones unfold

Numbers = Mapping[tuple[str, str], Sequence[float]]  # by metric and unit, of all flows and valid points


class _Check(BaseModel):
    kind: str
    name: str
    measured: object = None
    unit: str = ""


class _Point(BaseModel):
    directory: str
    state: str


class _Verdict(BaseModel):
    """What the index needs of ``verdict.json``: of a point, or of a run with several."""

    state: str
    reasons: list[str] = []
    checks: list[_Check] = []
    points: list[_Point] = []


class Testbed(NamedTuple):
    """Where a run was: what people call it, and what tells it from others."""

    name: str
    hosts: str


UNKNOWN = Testbed("unknown", "")


@dataclass(frozen=True)
class Listed:
    """A run directory as the index shows it; what cannot be read is not there."""

    dir: Path

    @cached_property
    def _named(self) -> re.Match[str] | None:
        return re.fullmatch(r"(\d{8}T\d{6}Z)_(.+?)(_attempt\d+)?", self.dir.name)

    @property
    def is_run(self) -> bool:
        """Whether it is a run at all: by its name, or by its plan if it was renamed."""
        return self._named is not None or (self.dir / "plan.json").exists()

    @cached_property
    def scenario(self) -> str:
        """Name of its scenario."""
        if self._named:
            return self._named[2]
        return str(dig(read_json(self.dir / "plan.json"), "scenario") or "unknown")

    @cached_property
    def began(self) -> datetime | None:
        """When it was planned, by the controller's clock."""
        if self._named:
            try:
                return time_of(self._named[1])
            except ValueError:
                return None
        times = [event["unix_ns"] for event in _states(self.dir)]
        return datetime.fromtimestamp(times[0] / 1e9, UTC) if times else None

    @property
    def title(self) -> str | None:
        """What its scenario says that it is."""
        for name in ("manifest.json", "plan.json"):
            if title := dig(read_json(self.dir / name), "title"):
                return str(title)
        return None

    @cached_property
    def _verdict(self) -> _Verdict | None:
        return _verdict(self.dir)

    @cached_property
    def _points(self) -> list[tuple[Path, _Verdict | None]]:
        """Directory and verdict of each point: of a run of one point its own."""
        if self._verdict and self._verdict.points:
            folders = [self.dir / point.directory for point in self._verdict.points]
        else:
            folders = point_folders(self.dir) or [self.dir]
        return [(folder, _verdict(folder)) for folder in folders]

    @cached_property
    def testbed(self) -> Testbed:
        """Hosts, their roles and machines, and whether time was virtual, as its first manifest says."""
        manifests = (read_json(folder / "manifest.json") for folder, _ in self._points)
        manifest = next((found for found in manifests if isinstance(dig(found, "hosts"), dict)), None)
        if manifest is None:
            return UNKNOWN
        hosts = {
            host: [str(_machine(state)), dig(state, "groups")] for host, state in manifest["hosts"].items()
        }
        machines = ", ".join(sorted({machine for machine, _ in hosts.values()}))
        kind = "virtual time" if manifest.get("digests") else machines
        return Testbed(f"{kind}, {len(hosts)} hosts", json.dumps(hosts, sort_keys=True))

    @cached_property
    def point_states(self) -> list[str | None]:
        """The verdict of each point, None where it has none."""
        if self._verdict and self._verdict.points:
            return [point.state for point in self._verdict.points]
        return [verdict.state if verdict else None for _, verdict in self._points]

    @cached_property
    def state(self) -> str:
        """Its verdict, else the last state that the controller wrote down, else ``unknown``."""
        if self._verdict:
            return self._verdict.state
        if (self.dir / "verdict.json").exists():
            return "unknown"
        folders = {self.dir, *(folder for folder, verdict in self._points if not verdict)}
        states = [event for folder in folders for event in _states(folder)]
        return str(max(states, key=lambda event: event["unix_ns"])["state"]) if states else "unknown"

    @property
    def why(self) -> str:
        """Why it is in that state, as far as it is known."""
        if self._verdict:
            more = len(self._verdict.reasons) - 1
            return "".join(self._verdict.reasons[:1]) + (f"; and {more} more" if more > 0 else "")
        if (self.dir / "verdict.json").exists():
            return "verdict.json cannot be read"
        return "no state was written down" if self.state == "unknown" else "no verdict yet"

    @cached_property
    def numbers(self) -> Numbers:
        """What expectations were measured by, and what the flows delivered; of valid points only."""
        found: dict[tuple[str, str], list[float]] = {}
        for _, verdict in self._points:
            if verdict and verdict.state in analysis.VALID:
                for check in verdict.checks:
                    if check.kind == "expect" and isinstance(check.measured, int | float):
                        found.setdefault((check.name, check.unit), []).append(check.measured)
        for name, unit, values in self._of_flows():
            if values:
                found[name, unit] = values
        return found

    def _of_flows(self) -> Iterator[tuple[str, str, list[float]]]:
        try:
            flows = pl.read_parquet(self.dir / "flows.parquet").filter(pl.col("phase") == "measurement")
            state = pl.col("verdict") if "verdict" in flows.columns else pl.lit(self.state)
            flows = flows.filter(state.is_in(analysis.VALID))
            fetches = pl.col("kind") == "http"
            yield "goodput", "bps", flows.filter(~fetches)["goodput_bps"].drop_nulls().to_list()
            if flows.filter(fetches).height:
                yield "median fetch", "ns", flows.filter(fetches)["completion_p50_ns"].drop_nulls().to_list()
        except (OSError, pl.exceptions.PolarsError):
            return

    @property
    def report(self) -> str:
        """Address of its report, or of its files, beside the index."""
        report = "report.html" if (self.dir / "report.html").exists() else ""
        return f"{quote(self.dir.name)}/{report}"


def _verdict(folder: Path) -> _Verdict | None:
    try:
        return _Verdict.model_validate_json((folder / "verdict.json").read_bytes())
    except (OSError, ValueError):
        return None


def _machine(state: object) -> object:
    return dig(state, "hardware", "machine") or dig(state, "hardware", "processor") or "machines unknown"


def _states(folder: Path) -> list[Event]:
    events = [event for event in read_jsonl(folder / "events.jsonl") if event.get("event") == "state"]
    return [event for event in events if event.get("state") and isinstance(event.get("unix_ns"), int)]


def render_index(results_dir: Path) -> Path:
    """Write ``index.html`` over all runs of a directory, at once; returns its path.

    Of several that write at the same time the last lists the results of all: each reads what there is only
    while no other writes.
    """
    path, scratch = results_dir / "index.html", results_dir / ".index.html"
    with FileLock(results_dir / ".index.lock"):
        scratch.write_text(html.page("Runs", _body(results_dir)))
        scratch.replace(path)
    return path


def _body(results_dir: Path) -> str:
    found = (Listed(path) for path in results_dir.iterdir() if path.is_dir() and not path.is_symlink())
    runs = sorted((run for run in found if run.is_run), key=_newest_last, reverse=True)
    scenarios: dict[str, list[Listed]] = {}
    for run in runs:
        scenarios.setdefault(run.scenario, []).append(run)
    head = (
        "scenario",
        "testbed",
        "runs",
        "last run",
        "state",
        "metric",
        "its curve, oldest run left",
        "least",
        "most",
        "last",
    )
    overview = html.table(
        head,
        (_overview(name, *of) for name, own in scenarios.items() for of in _testbeds(own).items()),
    )
    sections = "".join(_section(name, own) for name, own in scenarios.items())
    return (
        f'{html.assets()}<h1>Runs</h1><p class="meta"><span>runs <b>{len(runs)}</b></span>'
        f"<span>scenarios <b>{len(scenarios)}</b></span>"
        f'<span><span class="mono">{escape(results_dir.resolve().name)}</span></span></p>'
        f"{overview if runs else '<p class=missing>There is no run in this directory yet.</p>'}"
        '<p class="note">Times are UTC. Numbers are of valid points only, from the least to the most. '
        "A testbed, by its hosts, their roles and machines, has curves of its own. A curve joins the medians "
        "of the runs, equally far apart, between the least and the most of these. "
        "● has passed; ○ has not, and its median is of the points that are valid; ✕ has no valid point. "
        f"A run without a verdict has the last state that its controller wrote down.</p>{sections}"
    )


def _newest_last(run: Listed) -> tuple[datetime, str]:
    return run.began or datetime.min.replace(tzinfo=UTC), run.dir.name


def _when(run: Listed) -> str:
    return f"{run.began:%Y-%m-%d %H:%M:%S}" if run.began else escape(run.dir.name)


def _time(run: Listed) -> str:
    """The same, which breaks between day and time only."""
    return " ".join(f"<time>{word}</time>" for word in _when(run).split())


def _metrics(runs: Iterable[Listed]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(metric for run in runs for metric in run.numbers))


def _name(metric: str) -> str:
    return escape(title(metric))


def _testbeds(runs: Iterable[Listed]) -> dict[Testbed, list[Listed]]:
    """Runs of a scenario by where they were, that of the newest first."""
    found: dict[Testbed, list[Listed]] = {}
    for run in runs:
        found.setdefault(run.testbed, []).append(run)
    return found


def _overview(scenario: str, testbed: Testbed, runs: Sequence[Listed]) -> str:
    """A row of the table of scenarios: a testbed, with the metric that its newest results name first."""
    metrics = _metrics(runs)
    cells = ["-"] * 5
    if metrics:
        (name, unit), *_ = metrics
        medians = [median(run.numbers[name, unit]) for run in runs if run.numbers.get((name, unit))]
        numbers = (min(medians), max(medians), medians[0])
        curve = _curve(list(reversed(runs)), (name, unit))
        cells = [_name(name), curve, *(human(number, unit) for number in numbers)]
    link = f'<a href="#{quote(scenario)}">{escape(scenario)}</a>'
    return html.row(
        [link, escape(testbed.name), str(len(runs)), _time(runs[0]), html.word(escape(runs[0].state)), *cells]
    )


def _section(scenario: str, runs: Sequence[Listed]) -> str:
    metrics = _metrics(runs)
    several = len(_testbeds(runs)) > 1
    names = (_name(name) for name, _ in metrics)
    head = ("run", *(["testbed"] if several else []), "state", "passed", *names, "why", "")
    title = next((title for run in runs if (title := run.title)), "")
    rows = [_row(run, metrics, several=several) for run in runs]
    older = rows[NEWEST:]
    return (
        f'<h2 id="{escape(scenario)}">{escape(scenario)}</h2><p>{escape(title)}</p>'
        + html.table(head, rows[:NEWEST])
        + (
            f"<details><summary>{len(older)} older</summary>{html.table(head, older)}</details>"
            if older
            else ""
        )
    )


def _row(run: Listed, metrics: Iterable[tuple[str, str]], *, several: bool) -> str:
    passed = run.point_states.count("passed")
    report = "report" if run.report.endswith("report.html") else "files"
    return html.row(
        [
            f'<span title="{escape(run.dir.name)}">{_time(run)}</span>',
            *([escape(run.testbed.name)] if several else []),
            html.word(escape(run.state)),
            f"{passed} of {len(run.point_states)}",
            *(_range(run.numbers.get(metric, ()), metric[1]) for metric in metrics),
            f'<span class="why">{escape(run.why)}</span>',
            f'<a href="{run.report}">{report}</a>',
        ]
    )


def _range(numbers: Sequence[float], unit: str) -> str:
    if not numbers:
        return "-"
    least, most = human(min(numbers), unit), human(max(numbers), unit)
    if least == most:
        return least
    number, _, name = least.partition(" ")
    return f"{number if most.endswith(f' {name}') else least} to {most}"


def _curve(runs: Sequence[Listed], metric: tuple[str, str]) -> str:
    """The median of a metric in each run, from the oldest, as a drawing."""
    medians = [median(numbers) if (numbers := run.numbers.get(metric)) else None for run in runs]
    return html.curve(
        [
            html.Mark(
                value,
                f"{_when(run)}: {run.state}, {human(value, metric[1])}",
                met=run.state == "passed",
            )
            for run, value in zip(runs, medians, strict=True)
        ]
    )
