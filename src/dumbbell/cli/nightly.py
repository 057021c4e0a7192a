"""Run a night: ``python -m dumbbell.cli.nightly suites/nightly.yml --home results/nightly``, in a checkout.

Exits with 0 without regressions, 1 after a regression, 2 if a run says nothing about TCP.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from pathlib import Path

from dumbbell.cluster import ClusterError
from dumbbell.cluster.asked import KINDS, shared
from dumbbell.ingest.influx import InfluxError, InfluxTarget, NoInflux
from dumbbell.kernels import KernelError
from dumbbell.nightly import page, tell
from dumbbell.nightly.history import History
from dumbbell.nightly.judge import Acknowledgement
from dumbbell.nightly.night import NightError, run_night, summary
from dumbbell.places import known
from dumbbell.plan import InventoryError
from dumbbell.run.record import write_json
from dumbbell.scenario import ScenarioError
from dumbbell.scenario.load import read_as
from dumbbell.suite import NO_STATEMENT, Suite, interrupted, load
from dumbbell.versions import NewerError


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m dumbbell.cli.nightly")
    parser.add_argument("suite", type=Path, help="file of the suite")
    parser.add_argument("--inventory", type=Path, default=Path("inventory/lab"))
    parser.add_argument("--home", type=Path, required=True, help="directory of its nights")
    parser.add_argument("--kernel", help="in virtual time: a recipe, a tree, or either with patches")
    parser.add_argument("--cluster", default="", help=f"machines that run points of virtual time: {KINDS}")
    options = parser.parse_args()
    try:
        suite = load(options.suite)
        regressions = acknowledged(known(suite.acknowledged)) if suite.acknowledged else []
        with shared(options.cluster, options.inventory):
            night = run_night(suite, options.inventory, options.home, regressions, options.kernel)
    except (ClusterError, KernelError, ScenarioError, InventoryError, NewerError, NightError) as error:
        print(error, file=sys.stderr)
        return NO_STATEMENT
    except KeyboardInterrupt:
        return interrupted()
    for outcome in night.outcomes:
        print(f"{outcome.state:12}  {outcome.entry.scenario} {outcome.entry.profile or ''}")
        print("".join(f"{'':14}{reason}\n" for reason in outcome.reasons), end="")
    told = summary(night)
    for found in told["findings"]:
        print(page.sentence(found))
    print(write(options.home, told))
    for problem in publish(options.home, told, suite, options.inventory):
        print(problem, file=sys.stderr)
    return night.status


def write(home: Path, told: page.Json) -> Path:
    """Write the page and the feed of all nights, and JUnit's XML and JSON of the last. Returns the page."""
    with closing(History(home / "history.sqlite")) as history:
        target = page.render(home, history)
    (home / "feed.atom").write_bytes(page.atom(page.told_nights(home) or [told]))
    (home / "junit.xml").write_bytes(page.junit(told))
    write_json(home / "night.json", told)
    return target


def publish(home: Path, told: page.Json, suite: Suite, inventory: Path) -> list[str]:
    """Write to the inventory's InfluxDB, if it names one, and notify.

    Returns errors, which do not change the exit status.
    """
    problems = []
    with closing(History(home / "history.sqlite")) as history:
        series = history.series()
    try:
        tell.store(told, series, InfluxTarget.of_inventory(inventory))
    except NoInflux:
        pass
    except InfluxError as error:
        problems.append(f"InfluxDB has no values and no annotations of this night: {error}")
    if suite.notify:
        problems += filter(None, [tell.notify(suite.notify, json.dumps(told))])
    return problems


def acknowledged(path: Path) -> list[Acknowledgement]:
    """Read the known regressions. Raises ScenarioError with all errors of the file."""
    return read_as(path, list[Acknowledgement])[1]


if __name__ == "__main__":
    sys.exit(main())
