"""One night: run a suite, store its numbers, and find, confirm and judge changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dumbbell.kernels import check
from dumbbell.nightly.again import InTurn
from dumbbell.nightly.history import History
from dumbbell.nightly.judge import Acknowledgement, Finding, judge
from dumbbell.plan import Inventory, Plan
from dumbbell.run.content import RunSet
from dumbbell.run.directory import STAMP, time_of
from dumbbell.run.record import write_json
from dumbbell.suite import (
    NO_STATEMENT,
    NOT_RUN,
    STATUS,
    Budget,
    Outcome,
    Suite,
    find_run,
    outcome_of,
    planned,
    run_suite,
    told_of,
)

REGRESSION = 1
_DONE = "night.json"
_UNDER_WAY = "under_way"  # a file that exists while a night runs
GOES_ON = timedelta(hours=20)  # age up to which an interrupted night is resumed; less than a day


class NightError(Exception):
    """A night cannot begin; the message says why."""


@dataclass(frozen=True)
class Night:
    """The results of a night."""

    id: str
    dir: Path
    suite: Suite
    outcomes: Sequence[Outcome]
    findings: Sequence[Finding]

    @property
    def status(self) -> int:
        """0 without regressions, 1 after one or a failed expectation, 2 if a run says nothing about TCP."""
        told = [outcome.state for outcome in self.outcomes if outcome.state != NOT_RUN]
        worst = [STATUS.get(state, NO_STATEMENT) for state in told]
        if REGRESSION in worst or any(finding.alarm for finding in self.findings):
            return REGRESSION
        return max(worst, default=NO_STATEMENT)


def run_night(
    suite: Suite,
    inventory: Path,
    home: Path,
    acknowledged: Sequence[Acknowledgement] = (),
    kernel: str | None = None,
) -> Night:
    """Run a suite, and compare its results with all earlier nights.

    ``home`` has ``history.sqlite`` and a directory for each night. A night that was interrupted less than
    :data:`GOES_ON` ago is resumed; the remaining runs of older ones are skipped.
    In virtual time it may be on another ``kernel``, as :func:`dumbbell.kernels.asked` takes it.
    Raises NightError if another night is running or the hosts are not virtual; KernelError, ScenarioError or
    InventoryError if planning fails.
    """
    home = home.resolve()  # as run directories are
    with _alone(home):
        hosts = Inventory.read(inventory)
        if kernel is not None:
            if not hosts.virtual:
                raise NightError(
                    f"{inventory}: --kernel is of virtual time (--inventory inventory/vtime); on hosts a "
                    "scenario asks for it (hosts.X.kernel)"
                )
            check(kernel)
        plans = planned(suite, hosts)  # before a directory for the night exists
        (home / _UNDER_WAY).touch()
        folder, left = _folders(home, datetime.now(UTC))
        for earlier in left:
            _end(_broken_off(suite, plans, earlier))
        budget = Budget(suite.budget)
        with closing(History(home / "history.sqlite")) as history:
            _measure_anew(history)
            outcomes = [
                _recorded(history, folder, outcome)
                for outcome in run_suite(suite, inventory, folder, budget, kernel=kernel)
            ]
            in_turn = InTurn(inventory, folder, zip(outcomes, plans, strict=True), budget)
            findings = list(
                judge(
                    history,
                    folder.name,
                    suite.least_change,
                    acknowledged,
                    in_turn,
                    points={point.id for wanted in plans for point in wanted.points},
                    exact=in_turn.exact,
                )
            )
        night = Night(folder.name, folder, suite, outcomes, findings)
        _end(night)
        (home / _UNDER_WAY).unlink()
        return night


def _measure_anew(history: History) -> None:
    """Compute values of former definitions of metrics again, from the run directories that are left."""
    for night, run in history.outdated():
        if run.is_dir():
            history.record(night, run)


def _end(night: Night) -> None:
    write_json(night.dir / _DONE, summary(night))


def _broken_off(suite: Suite, plans: Sequence[Plan], folder: Path) -> Night:
    """An interrupted night that is too old to resume, with the states of its runs."""
    outcomes = []
    for entry, wanted in zip(suite.runs, plans, strict=True):
        run = find_run(folder, wanted)
        never = Outcome(entry, NOT_RUN, ("the night was broken off",), None)
        outcomes.append(never if run is None else outcome_of(entry, run))
    return Night(folder.name, folder, suite, outcomes, [])


def _recorded(history: History, folder: Path, outcome: Outcome) -> Outcome:
    """Store the numbers of a run. If they cannot be read, the run becomes invalid."""
    run = outcome.run_dir
    if run is None or not any((point / "verdict.json").exists() for point in RunSet.open(run).dirs):
        return outcome
    try:
        problems = history.record(folder.name, run)
    except Exception as error:  # an error of one run must not end the night
        problems = [told_of(error)]
    if not problems:
        return outcome
    state = outcome.state if STATUS.get(outcome.state) is None else "invalid"
    return replace(outcome, state=state, reasons=(*outcome.reasons, *problems))


def _folders(home: Path, now: datetime) -> tuple[Path, list[Path]]:
    """Directory of the night to resume, or of a new one; and those of nights that are too old to resume."""
    left = [path for path in sorted((home / "nights").glob("[0-9]*Z")) if not (path / _DONE).exists()]
    if left and now - time_of(left[-1].name) < GOES_ON:
        return left[-1], left[:-1]
    folder = home / "nights" / f"{now:{STAMP}}"
    folder.mkdir(parents=True)
    return folder, left


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
    """A night as JSON: its runs and its findings."""
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
                "low": finding.low,
                "high": finding.high,
                "evidence": finding.evidence,
                "tested": finding.tested,
                "instrument": finding.instrument,
                "reason": finding.reason,
            }
            for finding in night.findings
        ],
    }
