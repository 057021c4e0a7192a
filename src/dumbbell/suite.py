"""Suites: scenarios that run one after the other, unattended.

What an earlier call has ended is not run again, and what it has begun goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import AfterValidator, Field

from dumbbell.cluster import ADDRESS
from dumbbell.places import known, playbook
from dumbbell.plan import Inventory, Plan, clock, plan
from dumbbell.plan.virtual import real_s
from dumbbell.quantities import Duration, Name, Ratio, Strict
from dumbbell.run.directory import RunDir
from dumbbell.run.record import read_json
from dumbbell.scenario import ScenarioError
from dumbbell.scenario.load import read_as

_RUNS_OF_CLUSTER = 4  # for each core of the controller
NOT_RUN = "not run"
POINT_NS = 75 * 10**9  # that preparing, fetching and judging a point take in the virtual lab
STATUS = {"passed": 0, "failed": 1}  # of valid runs: what else became of one is no statement about TCP
NO_STATEMENT = 2
UNEXPLAINED = 3  # of fab ab: settings of hosts differ between what is compared, and nothing explains it
INTERRUPTED = 130  # as shells say it of a program that SIGINT has ended


class Entry(Strict):
    """A run of a suite: a scenario's file, which is here or one of Dumbbell's, and its profiles."""

    scenario: Annotated[str, AfterValidator(lambda path: str(known(path)))]
    profile: str | None = None


class Suite(Strict):
    """What is run, in this order."""

    name: Name
    title: str
    budget: Duration | None = None
    least_change: Ratio = 0.01  # what is less is no regression
    acknowledged: str | None = None  # file of the regressions that are known, from the checkout on
    notify: Annotated[list[str], Field(min_length=1)] | None = None  # a program that gets a night as JSON
    runs: Annotated[list[Entry], Field(min_length=1)]


@dataclass(frozen=True)
class Outcome:
    """What became of an entry: its verdict's state and reasons. ``run_dir`` is None if it never began."""

    entry: Entry
    state: str
    reasons: tuple[str, ...]
    run_dir: Path | None


def load(path: Path) -> Suite:
    """Read a suite's file; :class:`ScenarioError` with everything that is wrong in it."""
    return read_as(path, Suite)[1]


def planned(suite: Suite, inventory: Inventory) -> list[Plan]:
    """The plan of each entry; :class:`ScenarioError` of all that cannot be planned."""
    plans, problems = [], []
    for entry in suite.runs:
        try:
            plans.append(plan(Path(entry.scenario), inventory, entry.profile))
        except ScenarioError as error:
            problems += error.problems
    if problems:
        raise ScenarioError(problems)
    return plans


class Budget:
    """Time that there is from now on, or None for as much as it takes."""

    def __init__(self, limit_ns: int | None) -> None:
        self._limit_ns, self._began = limit_ns, time.monotonic()

    def refuses(self, wanted: Plan) -> str:
        """Why a plan is not begun: it would not end within what is left. Empty if it would."""
        if self._limit_ns is None:
            return ""
        left_ns = self._limit_ns - (time.monotonic() - self._began) * 1e9
        if (takes_ns := real_ns(wanted)) <= left_ns:
            return ""
        left = f"{about(max(0, left_ns))} are left of the budget of {about(self._limit_ns)}"
        return f"it takes about {about(takes_ns)}, and {left}"


def run_suite(
    suite: Suite,
    inventory_path: Path,
    results: Path,
    budget: Budget | None = None,
    *,
    kernel: str | None = None,
    module: Path | None = None,
    log: IO[str] | None = None,
) -> Iterator[Outcome]:
    """Run what has no result yet, entry by entry; in virtual time side by side.

    What would not end within the budget (by default the suite's, from now) is not begun. An entry that
    cannot be run, for whatever reason, keeps no other from being run. ``kernel``, ``module`` and ``log`` are
    those of :func:`run_entry`. ScenarioError or InventoryError before anything is run.
    """
    inventory = Inventory.read(inventory_path)
    plans = planned(suite, inventory)
    budget = budget or Budget(suite.budget)

    def run(entry: Entry, wanted: Plan) -> Outcome:
        begun = find_run(results, wanted)
        if begun is None or not ended(begun):
            if why := budget.refuses(wanted):
                return Outcome(entry, NOT_RUN, (why,), None)
            run_entry(
                entry,
                inventory_path,
                results,
                virtual=inventory.virtual,
                begun=begun,
                kernel=kernel,
                module=module,
                log=log,
            )
        return outcome_of(entry, begun or find_run(results, wanted))

    def outcome(entry: Entry, wanted: Plan) -> Outcome:
        try:
            return run(entry, wanted)
        except Exception as error:  # whatever it is, the others are run
            return Outcome(entry, "aborted", (told_of(error),), None)

    # The first makes what the worlds of all others begin with.
    yield outcome(suite.runs[0], plans[0])
    with ThreadPoolExecutor(at_once(inventory)) as side_by_side:
        yield from side_by_side.map(outcome, suite.runs[1:], plans[1:])


def told_of(error: Exception) -> str:
    """An error that nothing was prepared for, as a reason."""
    return f"{type(error).__name__}: {error}"


def about(ns: float) -> str:
    """A time for people, in steps of 10 s."""
    return clock(10**10 * round(ns / 1e10))


def real_ns(wanted: Plan) -> float:
    """About how long a plan takes."""
    if wanted.virtual:
        return 1e9 * real_s(wanted.points)
    return sum(float(point.duration_ns + POINT_NS) for point in wanted.points)


def find_runs(results: Path, wanted: Plan) -> list[RunDir]:
    """Runs of this very plan that a directory of results has, the oldest first; no earlier attempts."""
    plan_files = sorted(results.glob(f"[0-9]*_{wanted.scenario}/plan.json"))
    text = wanted.to_json()
    return [RunDir.open(path.parent) for path in plan_files if path.read_bytes() == text]


def find_run(results: Path, wanted: Plan) -> RunDir | None:
    """The last of them."""
    return next(reversed(find_runs(results, wanted)), None)


def at_once(inventory: Inventory) -> int:
    """How many runs an inventory takes side by side: in virtual time as many as there are cores.

    On a cluster the controller only waits for worlds, so it has several for each core.
    """
    if not inventory.virtual:
        return 1
    return len(os.sched_getaffinity(0)) * (_RUNS_OF_CLUSTER if os.environ.get(ADDRESS) else 1)


def ended(run: RunDir) -> bool:
    """Whether every point of a run came to its end."""
    return all(execution.finished for execution in run.executions)


def run_entry(
    entry: Entry,
    inventory: Path,
    results: Path,
    *,
    virtual: bool,
    begun: RunDir | None = None,
    point: str | None = None,
    seed: int | None = None,
    repetitions: int | None = None,
    kernel: str | None = None,
    module: Path | None = None,
    log: IO[str] | None = None,
) -> None:
    """Begin a run, of all of its points or of one, or go on with the one that was begun.

    In virtual time it may be on another ``kernel``, as :func:`dumbbell.kernels.asked` takes it, and its hosts
    may have a ``module`` more, built from this directory. What the playbook says goes to ``log``; by default
    to the terminal.
    """
    asked: dict[str, object]
    if begun is not None:
        name, asked = "resume", {"run": begun.dir}
    else:
        name = "run"
        asked = {"scenario": entry.scenario, "profile": entry.profile, "point": point}
        asked |= {"run_seed": seed, "run_repetitions": repetitions}
        asked["results_dir"] = results.absolute()
    asked |= {"kernel": kernel, "world_module": None if module is None else module.absolute()}
    if virtual:
        name = "virtual"
    program = Path(sys.executable).with_name("ansible-playbook")
    words = [f"{key}={value}" for key, value in asked.items() if value is not None]
    extra = [word for variable in words for word in ("-e", variable)]
    command = [str(program), "--inventory", str(inventory), playbook(name), *extra]
    stdin = None if log is None else subprocess.DEVNULL
    with subprocess.Popen(command, stdin=stdin, stdout=log, stderr=log) as running:
        try:
            running.wait()
        except KeyboardInterrupt:
            running.wait()  # it has heard that too, and may ask whether to stop its agents
            raise


def outcome_of(entry: Entry, run: RunDir | None) -> Outcome:
    """What became of the run of an entry, None if it did not begin."""
    if run is None:
        return Outcome(entry, "aborted", ("it did not begin",), None)
    verdict = _verdict(run)
    reasons = verdict.get("reasons", ["it has no verdict"])
    return Outcome(entry, verdict.get("state", "aborted"), tuple(reasons), run.dir)


def _verdict(run: RunDir) -> dict[str, Any]:
    return read_json(run.dir / "verdict.json") or {}


def interrupted() -> int:
    """Say how to go on; the exit status."""
    print("Interrupted. The same command goes on where it was.", file=sys.stderr)
    return INTERRUPTED
