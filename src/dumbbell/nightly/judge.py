"""Find the changes of a night's series, and raise and close alarms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from statistics import median
from typing import Literal

from dumbbell.metrics.registry import worse
from dumbbell.nightly.changes import confirmed, fresh
from dumbbell.nightly.history import Alarm, History, Key, Series
from dumbbell.quantities import Strict
from dumbbell.run.directory import time_of
from dumbbell.suite import told_of

State = Literal["new", "open", "acknowledged", "recovered", "not confirmed"]


class NotMeasured(Exception):
    """A point was not measured again; the message says why."""


Again = Callable[[Series], Sequence[float]]  # NotMeasured if there are too few values
Measured = Callable[[], Sequence[float]]  # the same for one series; empty if there are too few


class Acknowledgement(Strict):
    """A known regression, which is no alarm until it expires."""

    point: str
    metric: str
    subject: str | None = None
    since: date
    reason: str
    expires: date


@dataclass(frozen=True)
class Finding:
    """A series that has changed, or has recovered."""

    series: Series
    state: State
    worse: bool
    since: str
    before: float
    after: float
    reason: str = ""

    @property
    def effect(self) -> float | None:
        """Relative to before; None if that was 0."""
        return self.after / self.before - 1 if self.before else None

    @property
    def alarm(self) -> bool:
        """Whether it is a regression that nobody has acknowledged."""
        return self.worse and self.state in ("new", "open")


def judge(
    history: History,
    night: str,
    least: float,
    acknowledged: Sequence[Acknowledgement],
    again: Again,
    *,
    exact: bool = False,
) -> Iterator[Finding]:
    """Yield the changes of a night's series; open and close alarms in the history.

    ``again`` measures the point of a series again, to confirm a change. ``exact``
    values are from virtual time, and have no noise.
    """
    alarms: dict[Key, list[Alarm]] = {}
    for alarm in history.alarms():
        alarms.setdefault(alarm.key, []).append(alarm)
    for series in history.series():
        if series.nights[-1] == night:
            known = alarms.get(series.key, [])
            try:
                yield from list(
                    _of_series(history, series, known, acknowledged, again, least=least, exact=exact)
                )
            except Exception as error:  # an error of one series must not end the night
                last = series.medians[-1]
                yield Finding(series, "not confirmed", False, night, last, last, told_of(error))


def _of_series(
    history: History,
    series: Series,
    known: Sequence[Alarm],
    acknowledged: Sequence[Acknowledgement],
    again: Again,
    *,
    least: float,
    exact: bool,
) -> Iterator[Finding]:
    night, why_not = series.nights[-1], ""

    def measured() -> Sequence[float]:
        nonlocal why_not
        try:
            return again(series)
        except NotMeasured as why:
            why_not = f"it was not measured again: {why}"
            return []

    known = [alarm if alarm.closed else _follow(alarm, series, least, measured) for alarm in known]
    told = [alarm for alarm in known if alarm.closed is None or night in (alarm.opened, alarm.closed)]
    if all(alarm.how != "recovered" for alarm in told):
        change, sure = _new(series, known, least, measured, exact=exact)
        if change is not None and sure:
            told.append(change)
        elif change is not None:
            yield _finding(series, change, "not confirmed", why_not)
    left = list(acknowledged)
    for alarm in told:
        history.keep(alarm)
        state = _state(alarm, night)
        why = next((a for a in left if state != "recovered" and _matches(a, series, alarm)), None)
        if why is None:
            yield _finding(series, alarm, state, why_not)
        else:
            left.remove(why)  # a later change needs its own acknowledgement
            yield _finding(series, alarm, "acknowledged", why.reason)


def _state(alarm: Alarm, night: str) -> State:
    if alarm.opened == night:
        return "new"
    return "open" if alarm.closed is None else "recovered"


def _new(
    series: Series, known: Sequence[Alarm], least: float, measured: Measured, *, exact: bool
) -> tuple[Alarm | None, bool]:
    """A new change, and whether it was confirmed. While alarms are open, only a worse one counts."""
    still = [alarm for alarm in known if alarm.closed is None]
    expected = levelled(settled(series, known), still, exact=exact)
    change = fresh(expected.medians, least, exact=exact)
    if change is None:
        return None, False
    more = change.after > change.before
    alarm = Alarm(series.key, expected.nights[change.index], series.nights[-1], change.before, change.after)
    if any(_excess(of, of.after, change.after) <= least * abs(of.after) for of in still):
        return None, False
    sure = confirmed(expected.medians, change, measured(), least, exact=exact)
    if not worse(series.key.metric, more=more):
        alarm = replace(alarm, closed=series.nights[-1], how="accepted")
    return alarm, sure


def settled(series: Series, known: Sequence[Alarm]) -> Series:
    """The nights with the expected level: since the last accepted change, without recovered regressions."""
    accepted = [alarm.since for alarm in known if alarm.how == "accepted"]
    gaps = [(alarm.since, alarm.closed) for alarm in known if alarm.how == "recovered" and alarm.closed]
    kept = [
        i
        for i, night in enumerate(series.nights)
        if night >= max(accepted, default="") and not any(a <= night < b for a, b in gaps)
    ]
    return replace(
        series,
        nights=tuple(series.nights[i] for i in kept),
        medians=tuple(series.medians[i] for i in kept),
        runs=tuple(series.runs[i] for i in kept),
    )


def levelled(series: Series, still: Sequence[Alarm], *, exact: bool) -> Series:
    """The nights, with values before open alarms scaled to the level since the alarms.

    Nights before an alarm are dropped if they cannot be scaled (from 0), and if values are ``exact``.
    """
    nights, medians, runs = list(series.nights), list(series.medians), list(series.runs)
    for alarm in still:
        before = sum(night < alarm.since for night in nights)
        if alarm.before and not exact:
            medians[:before] = [value * alarm.after / alarm.before for value in medians[:before]]
        else:
            del nights[:before], medians[:before], runs[:before]
    return replace(series, nights=tuple(nights), medians=tuple(medians), runs=tuple(runs))


def _excess(alarm: Alarm, level: float, value: float) -> float:
    """By how much a value exceeds a level, in the direction of an alarm."""
    return value - level if alarm.after > alarm.before else level - value


def _follow(alarm: Alarm, series: Series, least: float, measured: Measured) -> Alarm:
    """Return an open alarm; closed if the level before it, or a better one, is back."""
    last = series.medians[-1]
    if _excess(alarm, (alarm.before + alarm.after) / 2, last) > 0:
        return alarm
    if not (found := measured()):
        return alarm
    if _excess(alarm, alarm.before, median([last, *found])) <= least * abs(alarm.before or alarm.after):
        return replace(alarm, closed=series.nights[-1], how="recovered")
    return alarm


def _finding(series: Series, alarm: Alarm, state: State, reason: str = "") -> Finding:
    more = alarm.after > alarm.before
    return Finding(
        series, state, worse(series.key.metric, more=more), alarm.since, alarm.before, alarm.after, reason
    )


def _matches(known: Acknowledgement, series: Series, alarm: Alarm) -> bool:
    night = time_of(series.nights[-1]).date()
    since = time_of(alarm.since).date()
    return (
        (known.point, known.metric) == (series.key.point, series.key.metric)
        and known.subject in (None, series.key.subject)
        and known.since <= since
        and night <= known.expires
    )
