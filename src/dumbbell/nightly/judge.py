"""Find the changes of a night's series, and raise and close alarms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from dumbbell.compare.observed import changes as changed
from dumbbell.metrics.registry import of_name, worse
from dumbbell.nightly.changes import (
    LATER,
    PAIRS,
    Change,
    Evidence,
    Least,
    Pairs,
    by_pairs,
    fresh,
    judged,
)
from dumbbell.nightly.history import Alarm, History, Key, Series
from dumbbell.nightly.identity import in_words
from dumbbell.quantities import Strict
from dumbbell.run.directory import time_of
from dumbbell.suite import told_of

State = Literal["new", "open", "acknowledged", "recovered", "gone", "redefined", "not confirmed"]
NIGHTS_OF_PAIRS = 3  # most nights with an A/B of the same two things under test
NOT_TONIGHT = "it was not measured tonight"


class NotMeasured(Exception):
    """There is no A/B of a point; the message says why."""


# Pairs of values of a series, with what was under test before and what is now. Raises NotMeasured.
InTurn = Callable[[Series, Mapping[str, str], Mapping[str, str]], Pairs]


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
    """A series that has changed, or has recovered.

    ``low`` and ``high`` are the interval of after - before. ``tested`` and ``instrument`` say in words what
    else changed in the night in which the change began, ``evidence`` what confirmed it.
    """

    series: Series
    state: State
    worse: bool
    since: str
    before: float
    after: float
    reason: str = ""
    low: float | None = None
    high: float | None = None
    evidence: str = ""
    tested: str = ""
    instrument: str = ""

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
    in_turn: InTurn,
    *,
    points: Collection[str] | None = None,
    exact: bool = False,
) -> Iterator[Finding]:
    """Yield the changes of a night's series; open and close alarms in the history.

    ``in_turn`` measures an A/B of the point of a series, to confirm a change. ``points`` are those of the
    suite: alarms of others are closed; None stands for all. ``exact`` values are from virtual time, and have
    no noise.
    """
    alarms: dict[Key, list[Alarm]] = {}
    for alarm in history.alarms():
        alarms.setdefault(alarm.key, []).append(alarm)
    every = history.series()
    present: dict[str, str] = {}  # the testbed that each point was measured on last
    for series in sorted(every, key=lambda one: one.nights[-1]):
        present[series.key.point] = series.key.fingerprint
    for series in every:
        key, own = series.key, alarms.get(series.key, [])
        judging = _Judging(
            history=history,
            series=series,
            night=night,
            least=_least(key.metric, least),
            acknowledged=acknowledged,
            in_turn=in_turn,
            exact=exact,
        )
        try:
            own = list(judging.closed(own, gone=points is not None and key.point not in points))
            if series.nights[-1] == night:
                yield from list(judging.changes(own))
            elif present[key.point] == key.fingerprint:
                yield from list(judging.told(own, NOT_TONIGHT))
        except Exception as error:  # an error of one series must not end the night
            last = series.medians[-1]
            yield Finding(series, "not confirmed", False, night, last, last, told_of(error))


def _least(name: str, relative: float) -> Least:
    metric = of_name(name)
    return Least(relative, metric.least if metric else 0.0)


@dataclass(kw_only=True)
class _Judging:
    """Judges a series of a night."""

    history: History
    series: Series
    night: str
    least: Least
    acknowledged: Sequence[Acknowledgement]
    in_turn: InTurn
    exact: bool
    why_not: str = ""  # why a change is not confirmed

    def closed(self, known: Sequence[Alarm], *, gone: bool) -> Iterator[Alarm]:
        """Close open alarms whose point is gone, or whose metric has another definition."""
        metric = of_name(self.series.key.metric)
        for alarm in known:
            how = None
            if alarm.closed is None:
                if gone or metric is None:
                    how = "gone"
                elif metric.version != alarm.version:
                    how = "redefined"
            if how:
                self.history.keep(alarm := replace(alarm, closed=self.night, how=how))
            yield alarm

    def changes(self, known: Sequence[Alarm]) -> Iterator[Finding]:
        """Find a change; store and yield it, and all alarms that are open or were closed tonight."""
        recovering = any(alarm.how == "recovered" and alarm.closed == self.night for alarm in known)
        change, evidence, expected = (None, None, self.series) if recovering else self._change(known)
        if change is not None and evidence is not None:
            known = self._with(change, evidence, expected, known)
        yield from self.told(known)
        if change is not None and evidence is None:
            since = expected.nights[change.index]
            yield self._finding(
                Alarm(self.series.key, since, self.night, change.before, change.after, version=0),
                "not confirmed",
                self.why_not or _waits(len(expected.nights) - change.index),
            )

    def told(self, known: Sequence[Alarm], reason: str = "") -> Iterator[Finding]:
        """Findings of alarms that are open, or that tonight has opened or closed."""
        left = list(self.acknowledged)
        for alarm in known:
            if alarm.closed is not None and self.night not in (alarm.opened, alarm.closed):
                continue
            state = _state(alarm, self.night)
            open_ = state in ("new", "open")
            why = next((a for a in left if open_ and _matches(a, self.series, alarm, self.night)), None)
            if why is None:
                yield self._finding(alarm, state, reason if state == "open" else "")
            else:
                left.remove(why)  # a later change needs its own acknowledgement
                yield self._finding(alarm, "acknowledged", why.reason)

    def _change(self, known: Sequence[Alarm]) -> tuple[Change | None, Evidence | None, Series]:
        """The last change of the expected level that matters, what confirms it, and the series it is of."""
        still = [alarm for alarm in known if alarm.closed is None]
        expected = levelled(settled(self.series, known), still, exact=self.exact)
        tested = [i for i in range(1, len(expected.nights)) if expected.tested[i] != expected.tested[i - 1]]

        def pairs(change: Change) -> Pairs:
            return self._pairs(expected, change) if self._matters(change, still) else []

        if self.exact:
            change = fresh(expected.medians, self.least, exact=True)
            evidence = None if change is None else self._by_seeds(expected, change, still)
        else:
            change, evidence = judged(expected.medians, self.least, tested, pairs)
        if change is None or not self._matters(change, still):
            return None, None, expected
        return change, evidence, expected

    def _matters(self, change: Change, still: Sequence[Alarm]) -> bool:
        """While alarms are open, a change for the worse must be worse than they, or a level must be back."""
        if worse(self.series.key.metric, more=change.up):
            return not any(
                _excess(of, of.after, change.after) <= self.least.relative * abs(of.after) for of in still
            )
        return not still or any(_back(alarm, change.after) for alarm in still)

    def _with(
        self, change: Change, evidence: Evidence, expected: Series, known: Sequence[Alarm]
    ) -> list[Alarm]:
        """The alarms with a confirmed change: one more, or those closed whose former level is back."""
        since = expected.nights[change.index]
        alarms = [
            replace(alarm, back=since, closed=self.night, how="recovered")
            if alarm.closed is None
            and _excess(alarm, alarm.after, change.after) < 0
            and _back(alarm, change.after)
            else alarm
            for alarm in known
        ]
        if alarms == list(known):
            metric = of_name(self.series.key.metric)
            alarm = Alarm(
                self.series.key,
                since,
                self.night,
                change.before,
                change.after,
                metric.version if metric else 1,
                evidence.low,
                evidence.high,
                evidence.told,
            )
            if not worse(self.series.key.metric, more=change.up):
                alarm = replace(alarm, closed=self.night, how="accepted")
            alarms.append(alarm)
        for alarm in alarms:
            if alarm not in known:
                self.history.keep(alarm)
        return alarms

    def _pairs(self, expected: Series, change: Change) -> Pairs:
        """All pairs of the A/B of a change; of tonight too, if there were not enough nights of them."""
        old, new = expected.tested[change.index - 1], expected.tested[-1]
        if old == new:
            return []
        found = self.history.pairs(self.series.key, old, new)
        if self.night not in found and len(found) < NIGHTS_OF_PAIRS:
            try:
                before, now = (self.history.conditions(of) for of in (old, new))
                found[self.night] = list(self.in_turn(self.series, before, now))
                self.history.add_pairs(self.night, self.series.key, old, new, found[self.night])
            except NotMeasured as why:
                self.why_not = f"there is no A/B: {why}; the next nights will tell"
        pairs = [pair for of in found.values() for pair in of]
        if pairs and not self.why_not:
            self.why_not = f"an A/B of {len(pairs)} pairs does not show it; the next nights will tell"
        return pairs

    def _by_seeds(self, expected: Series, change: Change, still: Sequence[Alarm]) -> Evidence | None:
        """What the values of each seed say of a change in virtual time: before, and tonight."""
        before, after = expected.repetitions[change.index - 1], expected.repetitions[-1]
        pairs = [(before[seed], after[seed]) for seed in before.keys() & after.keys()]
        if any(_back(alarm, change.after) for alarm in still):
            return Evidence(f"the same {len(pairs)} seeds", None, None)
        if len(pairs) < PAIRS:
            self.why_not = (
                f"{len(pairs)} of {PAIRS} seeds have a number before and after: "
                f"let the scenario have at least {PAIRS} repetitions"
            )
            return None
        told = f"{len(pairs)} seeds, each before and after"
        evidence = by_pairs(pairs, self.least, up=change.up, told=told)
        if evidence is None:
            self.why_not = f"{len(pairs)} seeds do not show it"
        return evidence

    def _finding(self, alarm: Alarm, state: State, reason: str = "") -> Finding:
        words = {}
        if alarm.since in self.series.nights and (at := self.series.nights.index(alarm.since)):
            for name in ("tested", "instrument"):
                before, after = (
                    self.history.conditions(of) for of in getattr(self.series, name)[at - 1 : at + 1]
                )
                words[name] = in_words(changed(before, after))
        return Finding(
            self.series,
            state,
            worse(self.series.key.metric, more=alarm.after > alarm.before),
            alarm.since,
            alarm.before,
            alarm.after,
            reason,
            alarm.low,
            alarm.high,
            alarm.evidence,
            **words,
        )


def _waits(nights: int) -> str:
    more = max(LATER - nights, 1)
    return f"at least {more} more {'night' if more == 1 else 'nights'} will tell"


def _state(alarm: Alarm, night: str) -> State:
    if alarm.opened == night:
        return "new"
    if alarm.closed is None:
        return "open"
    return alarm.how if alarm.how in ("gone", "redefined") else "recovered"  # type: ignore[return-value]


def settled(series: Series, known: Sequence[Alarm]) -> Series:
    """The nights with the expected level: since the last accepted change, without recovered regressions."""
    accepted = [alarm.since for alarm in known if alarm.how == "accepted"]
    gaps = [(alarm.since, alarm.back) for alarm in known if alarm.how == "recovered" and alarm.back]
    kept = [
        i
        for i, night in enumerate(series.nights)
        if night >= max(accepted, default="") and not any(a <= night < b for a, b in gaps)
    ]
    return replace(series, **series.only(kept))


def levelled(series: Series, still: Sequence[Alarm], *, exact: bool) -> Series:
    """The nights, with values before open alarms scaled to the level since the alarms.

    Nights before an alarm are dropped if they cannot be scaled (from 0), and if values are ``exact``.
    """
    for alarm in still:
        before = sum(night < alarm.since for night in series.nights)
        if alarm.before and not exact:
            ratio = alarm.after / alarm.before
            medians = [value * ratio if i < before else value for i, value in enumerate(series.medians)]
            series = replace(series, medians=tuple(medians))
        else:
            series = replace(series, **series.only(range(before, len(series.nights))))
    return series


def _excess(alarm: Alarm, level: float, value: float) -> float:
    """By how much a value exceeds a level, in the direction of an alarm."""
    return value - level if alarm.after > alarm.before else level - value


def _back(alarm: Alarm, value: float) -> bool:
    """Whether a value is nearer to the level before an alarm than to that since."""
    return _excess(alarm, (alarm.before + alarm.after) / 2, value) <= 0


def _matches(known: Acknowledgement, series: Series, alarm: Alarm, night: str) -> bool:
    since = time_of(alarm.since).date()
    return (
        (known.point, known.metric) == (series.key.point, series.key.metric)
        and known.subject in (None, series.key.subject)
        and known.since <= since
        and time_of(night).date() <= known.expires
    )
