"""``index.html`` of a directory of runs: all runs by scenario, the newest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from dumbbell.metrics.registry import title
from dumbbell.report import html
from dumbbell.report.curve import Curve, Mark
from dumbbell.studies.listed import Listed, Testbed
from dumbbell.units import human

NEWEST = 20  # runs of a scenario that are shown; older ones unfold

Metric = tuple[str, str]  # name and unit


class Row(NamedTuple):
    """A run as a row of its scenario's table."""

    run: Listed
    when: str
    passed: str
    ranges: list[str]


class Overview(NamedTuple):
    """A scenario on a testbed, with the first metric of its newest results."""

    scenario: str
    testbed: str
    runs: int
    last: Listed
    when: str
    metric: str = "-"
    curve: Curve | None = None
    numbers: Sequence[str] = ("-", "-", "-")


class Section(NamedTuple):
    """All runs of a scenario."""

    scenario: str
    title: str
    several: bool  # testbeds
    metrics: list[str]
    newest: list[Row]
    older: list[Row]


def render_index(results_dir: Path) -> Path:
    """Write ``index.html`` of all runs in a directory atomically; returns its path.

    If several processes write at the same time, the last page lists the results of all: each reads the
    directory under a lock.
    """
    path, scratch = results_dir / "index.html", results_dir / ".index.html"
    with FileLock(results_dir / ".index.lock"):
        scratch.write_text(_page(results_dir))
        scratch.replace(path)
    return path


def _page(results_dir: Path) -> str:
    found = (Listed(path) for path in results_dir.iterdir() if path.is_dir() and not path.is_symlink())
    runs = sorted((run for run in found if run.is_run), key=_newest_last, reverse=True)
    scenarios: dict[str, list[Listed]] = {}
    for run in runs:
        scenarios.setdefault(run.scenario, []).append(run)
    return html.page(
        "index.html",
        title="Runs",
        results=results_dir.resolve().name,
        runs=len(runs),
        overview=[_overview(name, *of) for name, own in scenarios.items() for of in _testbeds(own).items()],
        sections=[_section(name, own) for name, own in scenarios.items()],
    )


def _newest_last(run: Listed) -> tuple[datetime, str]:
    return run.began or datetime.min.replace(tzinfo=UTC), run.dir.name


def _when(run: Listed) -> str:
    return f"{run.began:%Y-%m-%d %H:%M:%S}" if run.began else run.dir.name


def _metrics(runs: Iterable[Listed]) -> list[Metric]:
    return list(dict.fromkeys(metric for run in runs for metric in run.numbers))


def _testbeds(runs: Iterable[Listed]) -> dict[Testbed, list[Listed]]:
    """The runs of a scenario by testbed, the one of the newest run first."""
    found: dict[Testbed, list[Listed]] = {}
    for run in runs:
        found.setdefault(run.testbed, []).append(run)
    return found


def _overview(scenario: str, testbed: Testbed, runs: Sequence[Listed]) -> Overview:
    row = Overview(scenario, testbed.name, len(runs), runs[0], _when(runs[0]))
    metrics = _metrics(runs)
    if not metrics:
        return row
    metric = name, unit = metrics[0]
    medians = [value for run in runs if (value := run.median(metric)) is not None]
    numbers = [human(number, unit) for number in (min(medians), max(medians), medians[0])]
    return row._replace(metric=title(name), curve=_curve(list(reversed(runs)), metric), numbers=numbers)


def _section(scenario: str, runs: Sequence[Listed]) -> Section:
    metrics = _metrics(runs)
    rows = [_row(run, metrics) for run in runs]
    return Section(
        scenario,
        next(filter(None, (run.title for run in runs)), ""),
        len(_testbeds(runs)) > 1,
        [title(name) for name, _ in metrics],
        rows[:NEWEST],
        rows[NEWEST:],
    )


def _row(run: Listed, metrics: Iterable[Metric]) -> Row:
    passed = "-" if run.state == "read" else f"{run.point_states.count('passed')} of {len(run.point_states)}"
    ranges = [_range(run.numbers.get(metric, ()), metric[1]) for metric in metrics]
    return Row(run, _when(run), passed, ranges)


def _range(numbers: Sequence[float], unit: str) -> str:
    if not numbers:
        return "-"
    least, most = human(min(numbers), unit), human(max(numbers), unit)
    if least == most:
        return least
    number, _, name = least.partition(" ")
    return f"{number if most.endswith(f' {name}') else least} to {most}"


def _curve(runs: Sequence[Listed], metric: Metric) -> Curve:
    """The median of a metric in each run, oldest first."""
    marks = []
    for run in runs:
        value = run.median(metric)
        said = f"{_when(run)}: {run.state}, {human(value, metric[1])}"
        marks.append(Mark(value, said, met=run.state == "passed"))
    return Curve(marks)
