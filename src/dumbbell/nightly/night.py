"""One night: a suite is run, its numbers are kept, and what has changed is found, confirmed and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

import polars as pl
from filelock import FileLock, Timeout

from dumbbell import analysis
from dumbbell.model.quantities import Strict
from dumbbell.nightly.changes import AGAIN, confirmed, fresh
from dumbbell.nightly.history import Alarm, History, Key, Series
from dumbbell.plan import Inventory
from dumbbell.rundir import STAMP, time_of, write_json
from dumbbell.store.values import VALUES, values
from dumbbell.suite import NO_STATEMENT, NOT_RUN, STATUS, Entry, Outcome, Suite, planned, run_entry, run_suite

REGRESSION = 1
_DONE = "night.json"
_UNDER_WAY = "under_way"  # is there from the beginning of a night to its end
# Metrics of which more is worse; of the others less is.
WORSE_IF_MORE = ("retransmits", "time_in_recovery", "rtt", "completion_time")

State = Literal["new", "open", "acknowledged", "recovered", "not confirmed"]


class NightError(Exception):
    """Why a night cannot begin."""


class Acknowledgement(Strict):
    """A regression that is known: no alarm until it expires."""

    point: str
    metric: str
    subject: str | None = None
    since: date
    reason: str
    expires: date


@dataclass(frozen=True)
class Finding:
    """A series that is not what it was, or is so again."""

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


@dataclass(frozen=True)
class Night:
    """What a night has found."""

    id: str
    dir: Path
    suite: Suite
    outcomes: Sequence[Outcome]
    findings: Sequence[Finding]

    @property
    def status(self) -> int:
        """0 if all is well, 1 after a regression or an expectation unmet, 2 if a run says nothing of TCP."""
        told = [outcome.state for outcome in self.outcomes if outcome.state != NOT_RUN]
        worst = [STATUS.get(state, NO_STATEMENT) for state in told]
        if REGRESSION in worst or any(finding.alarm for finding in self.findings):
            return REGRESSION
        return max(worst, default=NO_STATEMENT)


Again = Callable[[Series], Sequence[float]]


def run_night(
    suite: Suite, inventory: Path, home: Path, acknowledged: Sequence[Acknowledgement] = ()
) -> Night:
    """Run a suite, and judge what it measured by all nights before.

    ``home`` has ``history.sqlite`` and a directory for each night. One that was broken off goes on.
    NightError if another is under way; ScenarioError or InventoryError if nothing can be planned.
    """
    home = home.resolve()  # as run directories are
    with _alone(home):
        planned(suite, Inventory.read(inventory))  # before there is a night to go on with
        (home / _UNDER_WAY).touch()
        folder = _folder(home)
        with closing(History(home / "history.sqlite")) as history:
            outcomes = []
            for outcome in run_suite(suite, inventory, folder):
                outcomes.append(outcome)
                _record(history, folder, outcome)
            measured = _Again(inventory, folder, outcomes)
            findings = list(
                judge(history, folder.name, suite.least_change, acknowledged, measured, exact=measured.exact)
            )
        night = Night(folder.name, folder, suite, outcomes, findings)
        write_json(folder / _DONE, summary(night))
        (home / _UNDER_WAY).unlink()
        return night


def judge(
    history: History,
    night: str,
    least: float,
    acknowledged: Sequence[Acknowledgement],
    again: Again,
    *,
    exact: bool = False,
) -> Iterator[Finding]:
    """What of the series of a night is not as before; alarms are raised and closed in the history.

    ``again`` measures the point of a series some times more, for what it says to be confirmed. ``exact``
    values are those of virtual time.
    """
    alarms: dict[Key, list[Alarm]] = {}
    for alarm in history.alarms():
        alarms.setdefault(alarm.key, []).append(alarm)
    for series in history.series():
        if series.nights[-1] != night:
            continue
        known = [
            alarm if alarm.closed else _follow(alarm, series, least, again)
            for alarm in alarms.get(series.key, [])
        ]
        told = [alarm for alarm in known if alarm.closed is None or night in (alarm.opened, alarm.closed)]
        if all(alarm.how != "recovered" for alarm in told):
            change, sure = _new(series, known, least, again, exact=exact)
            if change is not None and sure:
                told.append(change)
            elif change is not None:
                yield _finding(series, change, "not confirmed")
        left = list(acknowledged)
        for alarm in told:
            history.keep(alarm)
            state = _state(alarm, night)
            why = next((a for a in left if state != "recovered" and _matches(a, series, alarm)), None)
            if why is None:
                yield _finding(series, alarm, state)
            else:
                left.remove(why)  # a change that comes later, beside it, is another
                yield _finding(series, alarm, "acknowledged", why.reason)


def _state(alarm: Alarm, night: str) -> State:
    if alarm.opened == night:
        return "new"
    return "open" if alarm.closed is None else "recovered"


def _new(
    series: Series, known: Sequence[Alarm], least: float, again: Again, *, exact: bool
) -> tuple[Alarm | None, bool]:
    """A change that is news, and whether it was confirmed; beside open alarms only one that is worse."""
    still = [alarm for alarm in known if alarm.closed is None]
    expected = levelled(settled(series, known), still, exact=exact)
    change = fresh(expected.medians, least, exact=exact)
    if change is None:
        return None, False
    more = change.after > change.before
    alarm = Alarm(series.key, expected.nights[change.index], series.nights[-1], change.before, change.after)
    if any(_excess(of, of.after, change.after) <= least * abs(of.after) for of in still):
        return None, False
    sure = confirmed(expected.medians, change, again(series), least, exact=exact)
    if not worse(series.key.metric, more):
        alarm = replace(alarm, closed=series.nights[-1], how="accepted")
    return alarm, sure


def worse(metric: str, more: bool) -> bool:
    """Whether a change of a metric, to more or to less, is for the worse."""
    return more == (metric in WORSE_IF_MORE)


def settled(series: Series, known: Sequence[Alarm]) -> Series:
    """The nights that say what is to be expected: since the last accepted change, without undone ones."""
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
    """The nights as if they had always been what they are since the open alarms, which is expected now.

    Without the nights before an alarm where they cannot tell: from 0, and of ``exact`` values no noise.
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
    """How far a value is beyond a level, in the direction of an alarm."""
    return value - level if alarm.after > alarm.before else level - value


def _follow(alarm: Alarm, series: Series, least: float, again: Again) -> Alarm:
    """An open alarm, closed if the level before is back, or better."""
    last = series.medians[-1]
    if _excess(alarm, (alarm.before + alarm.after) / 2, last) > 0:
        return alarm
    level = median([last, *again(series)])
    if _excess(alarm, alarm.before, level) <= least * abs(alarm.before or alarm.after):
        return replace(alarm, closed=series.nights[-1], how="recovered")
    return alarm


def _finding(series: Series, alarm: Alarm, state: State, reason: str = "") -> Finding:
    more = alarm.after > alarm.before
    return Finding(
        series, state, worse(series.key.metric, more), alarm.since, alarm.before, alarm.after, reason
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


class _Again:
    """Measures points again, each once a night, for all of its series."""

    def __init__(self, inventory: Path, folder: Path, outcomes: Sequence[Outcome]) -> None:
        self._inventory, self._folder = inventory, folder
        self.exact = Inventory.read(inventory).virtual
        self._entries = {
            str(outcome.run_dir): outcome.entry for outcome in outcomes if outcome.run_dir is not None
        }
        self._found: dict[str, pl.DataFrame] = {}

    def __call__(self, series: Series) -> list[float]:
        point = series.key.point
        if point not in self._found:
            self._found[point] = self._measure(self._entries[series.runs[-1]], point)
        rows = self._found[point]
        return rows.filter(metric=series.key.metric, subject=series.key.subject)["value"].to_list()

    def _measure(self, entry: Entry, point: str) -> pl.DataFrame:
        results = self._folder / "again" / point
        tables: list[pl.DataFrame] = []
        wanted = 1 if self.exact else AGAIN
        for _ in range(wanted):
            run_entry(entry, self._inventory, results, virtual=self.exact, point=point)
            tables = [
                values(run).filter(pl.col("verdict").is_in(analysis.VALID))
                for run in sorted(results.glob("[0-9]*"))
                if (run / "verdict.json").exists()
            ]
            if sum(table["repetition"].n_unique() for table in tables) >= wanted:
                break
        return pl.concat(tables) if tables else pl.DataFrame(schema=VALUES)


def _record(history: History, folder: Path, outcome: Outcome) -> None:
    if outcome.run_dir is not None and outcome.state != "aborted":
        history.record(folder.name, outcome.run_dir)


def _folder(home: Path) -> Path:
    """That of the night which was broken off, or of a new one."""
    nights = sorted((home / "nights").glob("[0-9]*Z"))
    if nights and not (nights[-1] / _DONE).exists():
        return nights[-1]
    folder = home / "nights" / f"{datetime.now(UTC):{STAMP}}"
    folder.mkdir(parents=True)
    return folder


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    home.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(home / "lock").acquire(blocking=False)
    except Timeout:
        raise NightError(f"another night of {home} is under way") from None
    with held:
        yield


def summary(night: Night) -> dict[str, Any]:
    """A night as JSON: what was run, and what was found."""
    return {
        "night": night.id,
        "suite": night.suite.name,
        "status": night.status,
        "runs": [
            {
                "scenario": outcome.entry.scenario,
                "profile": outcome.entry.profile,
                "state": outcome.state,
                "reasons": list(outcome.reasons),
                "directory": None if outcome.run_dir is None else str(outcome.run_dir.relative_to(night.dir)),
            }
            for outcome in night.outcomes
        ],
        "findings": [
            {
                **asdict(finding.series.key),
                "scenario": finding.series.scenario,
                "label": finding.series.label,
                "unit": finding.series.unit,
                "state": finding.state,
                "worse": finding.worse,
                "alarm": finding.alarm,
                "since": finding.since,
                "before": finding.before,
                "after": finding.after,
                "effect": finding.effect,
                "reason": finding.reason,
            }
            for finding in night.findings
        ],
    }
