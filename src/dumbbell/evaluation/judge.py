"""Judge values of criteria: pass, fail, or no answer where a point is not valid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dumbbell.evaluation.criteria import Family
from dumbbell.evaluation.measured import At, Values
from dumbbell.metrics.registry import MEDIAN, METRICS
from dumbbell.scenario.expand import concerns, text
from dumbbell.units import human

State = Literal["pass", "fail", "no answer"]
PASS: State = "pass"
FAIL: State = "fail"
NO_ANSWER: State = "no answer"


@dataclass(frozen=True)
class Judged:
    """A criterion at a point. ``low`` and ``high`` are the bounds in the metric's unit, None if not known."""

    label: str
    value: float | None
    low: float | None
    high: float | None
    state: State
    why: str  # there is no answer
    others: Mapping[str, float | None]  # values of the other subjects, by their names
    report: Path | None

    @property
    def margin(self) -> float:
        """How many times as good as the bound it is: from 1 on it passes. NaN without an answer."""
        if self.value is None or self.state == NO_ANSWER:
            return math.nan
        low = _ratio(self.value, self.low) if self.low is not None else math.inf
        high = _ratio(self.high, self.value) if self.high is not None else math.inf
        return min(low, high)


@dataclass(frozen=True)
class Result:
    """A criterion of a candidate, at all points that it is about."""

    family: Family
    criterion: Any
    points: Sequence[Judged]

    @property
    def state(self) -> State:
        """It fails if it does at any point, and has no answer if it has none at any of the others."""
        states = {of.state for of in self.points}
        return next(state for state in (FAIL, NO_ANSWER, PASS) if state in states)

    @property
    def decisive(self) -> Judged:
        """The point that decides: the one farthest beyond the bound, or nearest to it."""
        own = [of for of in self.points if of.state == self.state]
        return min(own, key=lambda of: 0 if math.isnan(of.margin) else of.margin)

    @property
    def unit(self) -> str:
        """The unit of its values."""
        return METRICS[self.criterion.metric].unit


def judge(
    family: Family, name: str, values: Mapping[str, Values], against: Sequence[str] = ()
) -> list[Result]:
    """Judge a candidate by a family's criteria; criteria without a point in this profile are left out.

    ``values`` are those of all subjects by their names. ``against`` takes the place of the references that
    criteria name.
    """
    found = []
    for of in family.criteria:
        own = {subject: by_criterion[of.name] for subject, by_criterion in values.items()}
        points = [
            _judged(of, label, name, own, against)
            for label, at in sorted(own[name].items(), key=lambda item: _place(of.when, *item))
            if concerns(of.when, at.levels)
        ]
        if points:
            found.append(Result(family, of, points))
    return found


def metric_in_words(of: Any) -> str:
    """What a criterion measures, as tables show it: ``RTT p95 of ping``."""
    percentile = getattr(of, "percentile", None)
    rank = "" if percentile in (None, MEDIAN) else f" p{percentile:g}"
    return f"{METRICS[of.metric].title}{rank}" + (f" of {', '.join(of.flows)}" if of.flows else "")


def bound_in_words(of: Any, against: Sequence[str] = ()) -> str:
    """The bound of a criterion, as tables show it."""
    unit = METRICS[of.metric].unit
    if of.relative is None:
        ends = [("at least", of.min, unit), ("at most", of.max, unit)]
        return " and ".join(
            f"{words} {human(value, unit)}" for words, value, unit in ends if value is not None
        )
    where = ", ".join(f"{name} {text(level)}" for name, level in of.relative.at.items())
    to = " or ".join(against or of.relative.to) if of.relative.to else "its own"
    ends = [("at least", of.relative.min, ""), ("at most", of.relative.max, "")]
    words = " and ".join(f"{words} {value:g} x {to}" for words, value, _ in ends if value is not None)
    return f"{words} at {where}" if where else words


def _place(when: Mapping[str, Any], label: str, at: At) -> tuple[list[int], str]:
    """Points in the order in which a criterion lists their levels."""
    lists = {
        name: [text(value) for value in wanted] for name, wanted in when.items() if isinstance(wanted, list)
    }
    found = [(known, at.levels.get(name)) for name, known in lists.items()]
    return [known.index(level) if level in known else len(known) for known, level in found], label


ByPoint = Mapping[str, At]  # values of a criterion by the label of the point


def _judged(of: Any, label: str, name: str, own: Mapping[str, ByPoint], against: Sequence[str]) -> Judged:
    at = own[name][label]
    others = {other: there[label].value for other, there in own.items() if other != name and label in there}
    if of.relative is None:
        low, high, why = of.min, of.max, at.why
    else:
        low, high, why = _limits(of, at, name, own, against)
        why = at.why or why
    state: State = NO_ANSWER
    if not why and at.value is not None:
        inside = (low is None or at.value >= low) and (high is None or at.value <= high)
        state = PASS if inside else FAIL
    return Judged(label, at.value, low, high, state, why, others, at.report)


def _limits(
    of: Any, at: At, name: str, own: Mapping[str, ByPoint], against: Sequence[str]
) -> tuple[float | None, float | None, str]:
    """The bounds of a relative criterion at a point, or why there are none."""
    relative, found = of.relative, []
    wanted = dict(at.levels) | {level: text(value) for level, value in relative.at.items()}
    for other in (against or relative.to) if relative.to else (name,):
        there = next((one for one in own[other].values() if one.levels == wanted), None)
        if there is None or there.value is None:
            return None, None, f"{other}: {there.why if there else 'it has no such point'}"
        found.append(there.value)
    # A change that says nothing does not fail, also where the ratio of two small values is large.
    least = METRICS[of.metric].least
    low = None if relative.min is None else relative.min * min(found) - least
    high = None if relative.max is None else relative.max * max(found) + least
    return low, high, ""


def _ratio(value: float, of: float) -> float:
    if of > 0:
        return value / of
    return math.inf if value >= of else 0.0
