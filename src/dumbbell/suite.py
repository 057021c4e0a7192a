"""Suites: scenarios that run one after the other, unattended.

``python -m dumbbell.suite suites/experiments.yml --inventory inventory/lab --results results/experiments``,
in a checkout. What an earlier call has ended is not run again, and what it has begun goes on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic
from pydantic import Field

from dumbbell.model import ScenarioError
from dumbbell.model.load import reasons
from dumbbell.model.quantities import Name, Strict
from dumbbell.model.tree import read
from dumbbell.plan import Inventory, InventoryError, Plan, plan
from dumbbell.rundir import RunDir, read_json

STATUS = {"passed": 0, "failed": 1}  # what else became of a run is no statement about TCP
NO_STATEMENT = 2


class Entry(Strict):
    """A run of a suite: a scenario's file, from the checkout on, and its profiles."""

    scenario: str
    profile: str | None = None


class Suite(Strict):
    """What is run, in this order."""

    name: Name
    title: str
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
    tree = read(path)
    problems = list(tree.problems)
    try:
        suite = Suite.model_validate(tree.value)
    except pydantic.ValidationError as error:
        problems += [tree.problem(*reason) for reason in reasons(error, tree.value)]
    if problems:
        raise ScenarioError(problems)
    return suite


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


def run_suite(suite: Suite, inventory_path: Path, results: Path) -> Iterator[Outcome]:
    """Run what has no result yet, entry by entry. ScenarioError or InventoryError before anything is run."""
    inventory = Inventory.read(inventory_path)
    plans = planned(suite, inventory)
    for entry, wanted in zip(suite.runs, plans, strict=True):
        begun = find_run(results, wanted)
        if begun is None or not _ended(begun):
            ansible = Path(sys.executable).with_name("ansible-playbook")
            playbook = [str(ansible), "--inventory", str(inventory_path)]
            subprocess.run([*playbook, *_arguments(entry, begun, results, inventory)], check=False)
        yield _outcome(entry, begun or find_run(results, wanted))


def find_run(results: Path, wanted: Plan) -> RunDir | None:
    """The last run of this very plan that a directory of results has."""
    plan_files = sorted(results.glob(f"[0-9]*_{wanted.scenario}/plan.json"), reverse=True)
    text = wanted.to_json()
    return next((RunDir.open(path.parent) for path in plan_files if path.read_bytes() == text), None)


def _ended(run: RunDir) -> bool:
    return all(execution.finished for execution in run.executions)


def _arguments(entry: Entry, begun: RunDir | None, results: Path, inventory: Inventory) -> list[str]:
    """The playbook that begins a run, or goes on with one."""
    if begun is not None:
        playbook = "virtual" if inventory.virtual else "resume"
        return [f"playbooks/{playbook}.yml", "-e", f"run={begun.dir}"]
    profile = [] if entry.profile is None else ["-e", f"profile={entry.profile}"]
    playbook = "virtual" if inventory.virtual else "run"
    asked = ["-e", f"scenario={entry.scenario}", "-e", f"results_dir={results.absolute()}"]
    return [f"playbooks/{playbook}.yml", *asked, *profile]


def _outcome(entry: Entry, run: RunDir | None) -> Outcome:
    if run is None:
        return Outcome(entry, "aborted", ("it did not begin",), None)
    verdict = read_json(run.dir / "verdict.json") or {"state": "aborted", "reasons": ["it has no verdict"]}
    return Outcome(entry, verdict["state"], tuple(verdict["reasons"]), run.dir)


def main() -> int:
    """Entry point; returns 0 if all runs passed, 1 if one failed, 2 if one says nothing about TCP."""
    parser = argparse.ArgumentParser(
        prog="python -m dumbbell.suite", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("suite", type=Path, help="file of the suite")
    parser.add_argument("--inventory", type=Path, default=Path("inventory/lab"))
    parser.add_argument("--results", type=Path, required=True, help="directory of its runs")
    options = parser.parse_args()
    try:
        outcomes = list(run_suite(load(options.suite), options.inventory, options.results))
    except (ScenarioError, InventoryError) as error:
        print(error, file=sys.stderr)
        return NO_STATEMENT
    for outcome in outcomes:
        profile = f" {outcome.entry.profile}" if outcome.entry.profile else ""
        print(f"{outcome.state:12}  {outcome.entry.scenario}{profile}  {outcome.run_dir or ''}")
        for reason in outcome.reasons:
            print(f"{'':14}{reason}")
    return max(STATUS.get(outcome.state, NO_STATEMENT) for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
