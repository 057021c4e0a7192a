"""Values of criteria at the points of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dumbbell.analysis import VALID
from dumbbell.metrics.measure import Tables
from dumbbell.metrics.registry import METRICS
from dumbbell.metrics.values import lives, tables_of
from dumbbell.plan import Expectation, Plan, Point, windows
from dumbbell.plan.expectations import expectation
from dumbbell.run.content import Run
from dumbbell.run.directory import RunDir
from dumbbell.scenario import KeyPath
from dumbbell.scenario.expand import concerns, text
from dumbbell.words import did_you_mean, known_are

NOT_RUN = "it was not run"


@dataclass(frozen=True)
class At:
    """The value of a criterion at a point: the median of its repetitions; ``why`` is why there is none."""

    levels: Mapping[str, str]
    value: float | None
    why: str
    report: Path | None  # of the first repetition


Values = dict[str, dict[str, At]]  # by the name of the criterion and the label of the point


class Unknown(Exception):
    """A criterion names something that its scenario does not have: the key, and the reason."""

    def __init__(self, key: KeyPath, reason: str) -> None:
        super().__init__(reason)
        self.key, self.reason = key, reason


def measure(wanted: Plan, run: RunDir | None, criteria: Sequence[Any]) -> Values:
    """The values of criteria at all points of their scenario; ``run`` is None if it did not begin.

    Also at points that a criterion is not about, since others may be compared with them.
    """
    found: dict[str, dict[str, list[At]]] = {of.name: {} for of in criteria}
    dirs = [None] * len(wanted.points) if run is None else [execution.dir for execution in run.executions]
    for point, folder in zip(wanted.points, dirs, strict=True):
        for name, at in _at_point(point, folder, criteria):
            found[name].setdefault(point.label, []).append(at)
    return {
        name: {label: _middle(repetitions) for label, repetitions in by_label.items()}
        for name, by_label in found.items()
    }


def _at_point(point: Point, folder: Path | None, criteria: Sequence[Any]) -> Iterator[tuple[str, At]]:
    tables, why = (None, NOT_RUN) if folder is None else _tables(folder)
    report = None if folder is None else folder / "report.html"
    for of in criteria:
        value, reason = None, why
        if tables is not None:
            try:
                measured = list(tables.measure(bound_of(of, point)))
            except Unknown as error:
                reason = error.reason
            else:
                reason = next((f"{one.subject}: {one.why}" for one in measured if one.value is None), "")
                known = [one.value for one in measured if one.value is not None]
                value = None if reason else _worst(of, known)
        yield of.name, At(point.levels, value, reason, report)


def _tables(folder: Path) -> tuple[Tables | None, str]:
    """The tables of a valid point, or why there are none."""
    try:
        run = Run.open(folder)
        if not run.verdict:
            return None, NOT_RUN
        if (state := run.verdict["state"]) not in VALID:
            return None, ": ".join([state, *run.verdict.get("reasons", [])[:1]])
        tables = tables_of(run)
    except (OSError, ValueError) as error:
        return None, str(error)
    return tables, "" if tables is not None else "it ended before it measured"


def _worst(of: Any, values: Sequence[float]) -> float:
    """Of several flows the one that is nearest to the bound, or farthest beyond."""
    least, most = _ends(of)
    more = METRICS[of.metric].worse == "more" if least == most else most
    return max(values) if more else min(values)


def _ends(of: Any) -> tuple[bool, bool]:
    """Whether a criterion has a lower and an upper bound."""
    bounds = of.relative or of
    return bounds.min is not None, bounds.max is not None


def _middle(repetitions: Sequence[At]) -> At:
    first = repetitions[0]
    values = [at.value for at in repetitions if at.value is not None]
    if len(values) < len(repetitions):
        return next(at for at in repetitions if at.value is None)
    return At(first.levels, median(values), "", first.report)


def bound_of(of: Any, point: Point) -> Expectation:
    """What a criterion measures at a point, without its bound; :class:`Unknown` if the point has not got it.

    A name of ``flows`` is that of a flow, or of flows that the scenario repeats.
    """
    metric, living = METRICS[of.metric], lives(point)
    flows = point.phase("measurement").flows
    known = metric.known(flows, living.keys() - {flow.name for flow in flows})
    names = [name for name in living if name in known]
    if of.flows is not None:
        names = []
        for i, asked in enumerate(of.flows):
            own = [name for name in living if re.fullmatch(rf"{re.escape(asked)}\d*", name)]
            if not own:
                raise Unknown(("flows", i), f"no flow {asked} runs there{known_are(asked, living)}")
            if not known.issuperset(own):
                raise Unknown(("flows", i), f"{of.metric} of {asked} is not known")
            names += own
    if not names:
        raise Unknown(("metric",), f"{of.metric} is not known of any flow")
    window = windows.default_window([living[name] for name in names], point.warm_up_ns)
    if of.window is not None:
        window = (of.window.start, of.window.end)
    if window is None:
        raise Unknown(("window",), "there is no time at which all of its flows run: give a window")
    return expectation(of, names, window)


def unknown(of: Any, points: Sequence[Point]) -> Iterator[tuple[KeyPath, str]]:
    """What a criterion names that none of its scenario's points has, with the keys."""
    levels: dict[str, list[str]] = {}
    for point in points:
        for name, level in point.levels.items():
            levels.setdefault(name, []).append(level)
    other = of.relative.at if of.relative else {}
    fine = True
    for key, asked in ((("when",), of.when), (("relative", "at"), other)):
        for name, wanted in asked.items():
            if name not in levels:
                fine = False
                yield (*key, name), f"nothing of this name varies{did_you_mean(name, levels)}"
                continue
            for value in map(text, wanted if isinstance(wanted, list) else [wanted]):
                if value not in levels[name]:
                    fine = False
                    yield (
                        (*key, name),
                        f"{name} is never {value}{known_are(value, dict.fromkeys(levels[name]))}",
                    )
    own = [point for point in points if concerns(of.when, point.levels)]
    if fine and not own:
        yield ("when",), "no point has all of these values"
    for point in own:
        try:
            bound_of(of, point)
        except Unknown as error:
            yield error.key, error.reason
            return
