"""Commands for people: ``fab --list``. The package does the work; playbooks change hosts."""

import shlex
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fabric import task

from dumbbell.inventory import Inventory, InventoryError

# Tasks import modules when they run: tables and plots take a second to load, and most tasks need none.

FOLLOW_S = 5


@task(
    help={
        "scenario": "file of the scenario",
        "inventory": "Ansible's inventory, by default the lab's",
        "profile": "profile of the scenario to lay over it",
        "point": "id of a point to show in detail, or `all`; by default the first",
    }
)
def plan(_, scenario, inventory="inventory/lab", profile=None, point=None):
    """Show the plan of a scenario: points, flows over time, each host's actions, duration."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # it may be piped into head
    with ThreadPoolExecutor(1) as meanwhile:  # Ansible takes as long to start as the planner
        reading = meanwhile.submit(Inventory.read, Path(inventory))
        from dumbbell.plan import describe
        from dumbbell.plan import plan as make_plan
        from dumbbell.scenario import ScenarioError
    try:
        planned = make_plan(Path(scenario), reading.result(), profile)
        print(describe(planned, point))
    except (ScenarioError, InventoryError) as error:
        raise SystemExit(str(error)) from None


@task(help={"run": "directory of the run, by default the last"})
def status(_, run="results/latest"):
    """Show the progress of a run, as recorded by its controller."""
    print(_open(run).describe(time.time_ns()))


@task(help={"run": "directory of the run, by default the last"})
def follow(_, run="results/latest"):
    """Show the progress of a run until every point has a verdict."""
    said = set()
    while True:
        found = _open(run)
        for line in found.describe(time.time_ns()).splitlines():
            if line not in said:
                print(line, flush=True)
                said.add(line)
        if all(execution.judged for execution in found.executions):
            return
        time.sleep(FOLLOW_S)


@task(
    help={"run": "directory of the run, by default the last", "inventory": "Ansible's, by default the lab's"}
)
def stop(context, run="results/latest", inventory="inventory/lab"):
    """End a run on its hosts (playbooks/stop.yml). Partial results are kept."""
    run_dir = shlex.quote(str(_open(run).dir))
    context.run(f"ansible-playbook -i {shlex.quote(inventory)} playbooks/stop.yml -e run={run_dir}")


@task(
    help={
        "a": "directory of a run, or several with commas between them",
        "b": "directory of another run, or several",
    }
)
def compare(_, a, b):
    """Compare two runs or sets of runs: medians, their ratio with its interval, other differences.

    Settings of hosts that differ without an explanation by plans or kernels are listed first.
    Exits with 2 if there is nothing to compare.
    """
    from dumbbell.compare.comparison import Comparison
    from dumbbell.suite import NO_STATEMENT

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        comparison = Comparison(a.split(","), b.split(","))
        print(comparison.text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"there is nothing to compare: {error}") from None
    if comparison.rows.is_empty():
        raise SystemExit(NO_STATEMENT)


@task(
    help={
        "scenario": "file of the scenario",
        "a": "first profile, for example a kernel's",
        "b": "second profile",
        "rounds": "valid runs of each, in turn; invalid runs are repeated, as often as there are rounds",
        "inventory": "Ansible's, by default the lab's",
        "accept": "settings that may differ without a reason: names or globs, with commas between them",
    }
)
def ab(_, scenario, a, b, rounds=5, inventory="inventory/lab", accept=""):  # noqa: PLR0917
    """Run two profiles of a scenario in turn, below results, and print a table for a mail.

    Exits with 2 if there is nothing to compare, and with 3, without a table, if settings of hosts differ
    without an explanation by the profiles or kernels.
    """
    from dumbbell.compare.comparison import Comparison
    from dumbbell.scenario import ScenarioError
    from dumbbell.suite import NO_STATEMENT, UNEXPLAINED, in_turn, interrupted

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    folder = Path("results", f"ab_{Path(scenario).stem}_{a}_{b}")
    try:
        first, second = in_turn(Path(scenario), (a, b), int(rounds), Path(inventory), folder)
        comparison = Comparison(first, second, (a, b), list(filter(None, accept.split(","))))
        print(comparison.no_verdict() if comparison.unexplained else comparison.mail())
    except (ScenarioError, InventoryError, OSError, ValueError) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(interrupted()) from None
    if comparison.unexplained:
        raise SystemExit(UNEXPLAINED)
    if comparison.rows.is_empty():
        raise SystemExit(NO_STATEMENT)


@task(
    help={
        "suite": "file of the suite",
        "inventory": "Ansible's, by default the lab's",
        "home": "directory of the nights",
        "now": "run a night; otherwise list what it would run, and how long that takes",
    }
)
def nightly(
    context,
    suite="suites/nightly.yml",
    inventory="inventory/lab",
    home="results/nightly",
    now=False,
):
    """Run a night now, as the timer of playbooks/nightly.yml does; exits with 1 after a regression."""
    night = ["dumbbell.nightly", suite, "--home", home, "--inventory", inventory]
    what = night if now else ["dumbbell.suite", suite, "--plan", "--inventory", inventory]
    raise SystemExit(context.run(shlex.join([sys.executable, "-m", *what]), warn=True).exited)


@task(help={"results": "directory of the runs"})
def index(_, results="results"):
    """Write index.html of all runs again, for example after runs were copied or deleted."""
    from dumbbell.report.pages.index import render_index

    try:
        print(render_index(Path(results)))
    except OSError as error:
        raise SystemExit(f"there are no runs to list: {error}") from None


def _open(run):
    from dumbbell.run.directory import RunDir

    try:
        return RunDir.open(Path(run))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{run} is no run directory: {error}") from None
