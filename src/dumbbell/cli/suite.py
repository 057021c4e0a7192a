"""Suites: scenarios that run one after the other, unattended.

``python -m dumbbell.cli.suite suites/nightly.yml --inventory inventory/lab --results results``,
in a checkout. What an earlier call has ended is not run again, and what it has begun goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dumbbell.cluster import ClusterError
from dumbbell.cluster.asked import KINDS, shared
from dumbbell.inventory import Inventory, InventoryError
from dumbbell.plan import Plan
from dumbbell.scenario import ScenarioError
from dumbbell.suite import (
    NO_STATEMENT,
    STATUS,
    Suite,
    about,
    interrupted,
    load,
    planned,
    real_ns,
    run_suite,
)


def main() -> int:
    """Entry point; returns 0 if all runs passed, 1 if one failed, 2 if one says nothing about TCP."""
    parser = argparse.ArgumentParser(
        prog="python -m dumbbell.cli.suite",
        description=(__doc__ or "").splitlines()[0],
    )
    parser.add_argument("suite", type=Path, help="file of the suite")
    parser.add_argument("--inventory", type=Path, default=Path("inventory/lab"))
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--plan", action="store_true", help="only say what is run, and how long it takes")
    what.add_argument("--results", type=Path, help="directory of its runs")
    parser.add_argument("--cluster", default="", help=f"machines that run points of virtual time: {KINDS}")
    options = parser.parse_args()
    try:
        suite = load(options.suite)
        if options.plan:
            print("\n".join(told(suite, planned(suite, Inventory.read(options.inventory)))))
            return 0
        with shared(options.cluster, options.inventory):
            outcomes = list(run_suite(suite, options.inventory, options.results))
    except (ClusterError, ScenarioError, InventoryError) as error:
        print(error, file=sys.stderr)
        return NO_STATEMENT
    except KeyboardInterrupt:
        return interrupted()
    for outcome in outcomes:
        profile = f" {outcome.entry.profile}" if outcome.entry.profile else ""
        print(f"{outcome.state:12}  {outcome.entry.scenario}{profile}  {outcome.run_dir or ''}")
        for reason in outcome.reasons:
            print(f"{'':14}{reason}")
    return max(STATUS.get(outcome.state, NO_STATEMENT) for outcome in outcomes)


def told(suite: Suite, plans: Sequence[Plan]) -> Iterator[str]:
    """What a suite runs, a line each, and how long that takes."""
    for entry, wanted in zip(suite.runs, plans, strict=True):
        profile = f" {entry.profile}" if entry.profile else ""
        takes = f"{len(wanted.points)} points, about {about(real_ns(wanted))}"
        yield f"{entry.scenario}{profile}: {takes}"
    total = about(sum(map(real_ns, plans)))
    budget = "" if suite.budget is None else f", of a budget of {about(suite.budget)}"
    yield f"{suite.name}: about {total}{budget}"


if __name__ == "__main__":
    sys.exit(main())
