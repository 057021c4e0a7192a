"""Make published experiments again: ``python -m tools.seeds [SEED ...]``, or ``make seeds SEED=prr``.

Says what is run and how long it takes, runs the suites of ``suites/seeds`` in virtual time, and writes
``docs/seeds``. What has come to its end is not run again, and what was interrupted goes on.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go

import tools.seeds.atou
import tools.seeds.beside_udp
import tools.seeds.eight_hours
import tools.seeds.prr
import tools.seeds.two_flows  # noqa: F401  each registers what it shows
from dumbbell.cli.suite import told
from dumbbell.cluster import ClusterError
from dumbbell.cluster.asked import KINDS, shared
from dumbbell.inventory import InventoryError
from dumbbell.plan import Inventory
from dumbbell.report import vector
from dumbbell.scenario import ScenarioError
from dumbbell.suite import NO_STATEMENT, STATUS, Suite, about, interrupted, load, real_ns, run_suite
from tools.seeds import originals, page, pictures
from tools.seeds.originals import Seed
from tools.seeds.runs import Runs

INVENTORY, SUITES, RESULTS = Path("inventory/vtime"), Path("suites/seeds"), Path("results/seeds")
README = page.FOLDER / "README.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status of the suites."""
    seeds = originals.load()
    parser = argparse.ArgumentParser(
        prog="python -m tools.seeds", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "seeds", nargs="*", metavar="SEED", help=f"some of {', '.join(seeds)}; by default all"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of the runs")
    parser.add_argument("--plan", action="store_true", help="only say what is run, and how long it takes")
    parser.add_argument("--pages", action="store_true", help="run nothing, only write the pages")
    parser.add_argument("--cluster", default="", help=f"machines that run points: {KINDS}")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.seeds if name not in seeds]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(seeds)}")
    asked = options.seeds or list(seeds)
    try:
        inventory = Inventory.read(INVENTORY)
        suites = {name: load(SUITES / f"{name}.yml") for name in seeds}
        runs = {name: Runs.of(suite, inventory, options.results) for name, suite in suites.items()}
        status = 0
        if not options.pages:
            print("\n".join(expected({name: suites[name] for name in asked}, runs)), flush=True)
        if options.plan:
            return status
        if vector.browser() is None:
            raise RuntimeError("No Chromium draws the pictures: on Debian, apt install chromium.")
        if not options.pages:
            with shared(options.cluster, INVENTORY):
                status = max(ran(suites[name], options.results) for name in asked)
        write({name: seeds[name] for name in asked}, seeds, runs)
    except (ClusterError, ScenarioError, InventoryError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return NO_STATEMENT
    except KeyboardInterrupt:
        return interrupted()
    return status


def expected(suites: Mapping[str, Suite], runs: Mapping[str, Runs]) -> list[str]:
    """What is run, and how long it takes on a core, and on all of them together."""
    said, total_ns = [], 0.0
    for name, suite in suites.items():
        plans = list(runs[name].plans.values())
        said += [f"{name}:", *(f"  {line}" for line in told(suite, plans))]
        total_ns += sum(map(real_ns, plans))
    cores = len(os.sched_getaffinity(0))
    together = f"about {about(total_ns)} of a core, about {about(total_ns / cores)} on {cores}"
    said.append(f"Together {together}. Runs that have ended are not run again.")
    return said


def ran(suite: Suite, results: Path) -> int:
    """Run a suite or go on with it; its exit status."""
    status = 0
    for outcome in run_suite(suite, INVENTORY, results):
        profile = f" {outcome.entry.profile}" if outcome.entry.profile else ""
        print(f"{outcome.state:12}  {outcome.entry.scenario}{profile}  {outcome.run_dir or ''}", flush=True)
        status = max(status, STATUS.get(outcome.state, NO_STATEMENT))
    return status


def write(asked: Mapping[str, Seed], seeds: Mapping[str, Seed], runs: Mapping[str, Runs]) -> None:
    """Write the pages that are asked for, their pictures, and the summary of all."""
    drawn: dict[Path, go.Figure] = {}
    for name, seed in asked.items():
        made = page.Page(seed, runs[name])
        path = page.FOLDER / f"{name}.md"
        path.write_text(text := made.written(path.read_text() if path.exists() else ""))
        for picture in (page.FOLDER / name).glob("*.svg"):
            if f"({name}/{picture.name})" not in text:
                picture.unlink()
        drawn |= made.pictures
    if drawn:
        pictures.write(drawn)
    pages = {name: (page.FOLDER / f"{name}.md").read_text() for name in seeds}
    expected_s = {
        name: {entry: real_ns(plan) / 1e9 for entry, plan in of.plans.items()} for name, of in runs.items()
    }
    blocks = {page.SUMMARY: page.summary(seeds, pages), page.TIMES: page.times(runs, expected_s)}
    README.write_text(page.renewed(README.read_text(), blocks))


if __name__ == "__main__":
    sys.exit(main())
