"""Commands of ``dumbbell`` and of ``fab``. The body of each is in the module of its name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from invoke.collection import Collection
from invoke.context import Context
from invoke.tasks import task

from dumbbell.cli.arguments import CLUSTER, OfSides, inventory_of
from dumbbell.cli.run_commands import archive, compare, export, figure, index, table
from dumbbell.places import known

START_PLAYBOOKS = ("ab", "bisect", "evaluate", "nightly", "stop")

# Tasks import modules when they run: tables and plots take a second to load, and most tasks need none.


@task(
    help={
        "scenario": "file of the scenario, or the name of one that comes with Dumbbell",
        "inventory": "Ansible's inventory, by default the lab's",
        "profile": "profile of the scenario to lay over it",
        "point": "id of a point to show in detail, or `all`; by default the first",
    }
)
def plan(
    _: Context,
    scenario: str,
    inventory: str = "inventory/lab",
    profile: str | None = None,
    point: str | None = None,
) -> None:
    """Show the plan of a scenario: points, flows over time, each host's actions, duration."""
    from dumbbell.cli.plan import show

    show(known(scenario, "scenarios"), known(inventory), profile, point)


@task(
    positional=["file"],
    help={
        "file": "the scenario: FILE.yml, which must not exist",
        "rate": "of the bottleneck, by default 100mbit",
        "rtt": "while the queue is empty, by default 20ms",
        "queue": "its kind, and its limit: 'pfifo 1bdp', the default, 'bfifo 250kB', fq_codel",
        "flows": "congestion control of each, by default cubic,cubic",
        "duration": "by default 30s",
        "repetitions": "by default 1",
        "inventory": "Ansible's, which has the flows' hosts, by default the lab's",
    },
)
def new(  # noqa: PLR0917
    _: Context,
    file: str,
    rate: str | None = None,
    rtt: str | None = None,
    queue: str | None = None,
    flows: str | None = None,
    duration: str | None = None,
    repetitions: str | None = None,
    inventory: str = "inventory/lab",
) -> None:
    """Write a scenario to begin with, from the answers to a few questions.

    On a terminal it asks for what no option says; elsewhere the defaults count.
    """
    from dumbbell.cli import new as command

    answers = {"rate": rate, "rtt": rtt, "queue": queue, "flows": flows}
    answers |= {"duration": duration, "repetitions": repetitions}
    command.new(Path(file), known(inventory), answers)


@task(
    iterable=["program"],
    help={
        "program": "build this one only, such as dumbbell-agent; once for each. Virtual time needs no other"
    },
)
def build(_: Context, program: Sequence[str]) -> None:
    """Build agent, collectors, atou, NDT, Telegraf and InfluxDB in .build/bin, by make and Go."""
    from dumbbell.cli.build import build as command

    raise SystemExit(command(program))


@task(help={"run": "directory of the run, by default the last"})
def status(_: Context, run: str = "results/latest") -> None:
    """Show the progress of a run, as recorded by its controller."""
    from dumbbell.cli.status import show

    show(Path(run))


@task(help={"run": "directory of the run, by default the last"})
def follow(_: Context, run: str = "results/latest") -> None:
    """Show the progress of a run until every point has a verdict."""
    from dumbbell.cli import follow as command

    command.follow(Path(run))


@task(
    help={
        "run": "directory of the run; results/latest becomes a newer one when that begins",
        "inventory": "Ansible's, which says where InfluxDB is, by default the lab's",
        "port": "of the server",
        "host": "address of the server; others than loopback can be read by everybody there",
    }
)
def live(
    _: Context,
    run: str = "results/latest",
    inventory: str = "inventory/lab",
    port: str = "8050",
    host: str = "127.0.0.1",
) -> None:
    """Serve a page that shows a run while it lasts: points, time left, flows, queue, verdicts."""
    from dumbbell.cli import live as command

    command.live(Path(run), known(inventory), host, port)


@task(help={"run": "directory of the run, by default the last", "inventory": "by default the lab's"})
def stop(context: Context, run: str = "results/latest", inventory: str = "inventory/lab") -> None:
    """End a run on its hosts (playbooks/stop.yml). Partial results are kept."""
    from dumbbell.cli.stop import command

    context.run(command(Path(run), known(inventory)))


@task(
    klass=OfSides,
    positional=["scenario", "a", "b"],
    iterable=["also", "kernel"],
    help={
        "scenario": "file of the scenario, or the name of one that comes with Dumbbell",
        "a": "first profile: the others are compared with it",
        "b": "second profile",
        "also": "a further profile; once for each",
        "kernel": "in place of profiles, twice or more often: a recipe, a Debian source package, "
        "TREE@REVISION; patches after commas (docs/kernels.md)",
        "profile": "profile that all kernels run",
        "metric": "metric that decides, by default the scenario's `primary`",
        "of": "flow or ping that the metric is of",
        "least": "smallest difference that matters, by default 2%",
        "rounds": "how many rounds are run; by default a pilot decides it",
        "most": "how many rounds are run at most if a pilot decides it, by default 30",
        "seed": "of the orders and of the runs, by default the scenario's",
        "inventory": "Ansible's, by default the lab's; with kernels inventory/vtime",
        "accept": "settings that may differ without a reason: names or globs, with commas between them",
        "name": "directory below results, by default ab_SCENARIO_SIDES",
        "cluster": CLUSTER,
    },
)
def ab(  # noqa: PLR0917
    _: Context,
    scenario: str,
    a: str = "",
    b: str = "",
    also: Sequence[str] | None = None,
    kernel: Sequence[str] | None = None,
    profile: str | None = None,
    metric: str | None = None,
    of: str | None = None,
    least: str | None = None,
    rounds: str | None = None,
    most: str | None = None,
    seed: str | None = None,
    inventory: str | None = None,
    accept: str = "",
    name: str | None = None,
    cluster: str = "",
) -> None:
    """Run profiles of a scenario, or kernels, in turn until it is known by how much they differ.

    docs/comparing.md says how. Prints the answer and a table for a mail. The same command goes on with an
    interrupted A/B. Exits with 2 if nothing can be said, and with 3, without an answer, if settings of hosts
    differ without an explanation by the profiles or kernels.
    """
    from dumbbell.cli import ab as command

    command.ab(
        known(scenario, "scenarios"),
        list(filter(None, (a, b, *(also or ())))),
        inventory_of(inventory, kernel),
        command.Options(metric, of, least, rounds, most, seed),
        kernels=kernel or (),
        profile=profile,
        accept=list(filter(None, accept.split(","))),
        name=name,
        cluster=cluster,
    )


@task(
    help={
        "scenario": "file of the scenario, or the name of one that comes with Dumbbell",
        "tree": "git tree of the kernel, a directory",
        "good": "commit that has the value as it was",
        "bad": "later commit that has the changed value",
        "metric": "metric that changed, such as goodput",
        "of": "flow or ping whose metric it is, if several have it",
        "profile": "profile of the scenario to lay over it",
        "point": "id of the point, if the scenario has several",
        "seeds": "seeds of a commit to begin with, at least 2; more are run as they are needed",
        "most": "seeds of a commit after which it is skipped",
        "sure": "least probability that the answer is right",
        "inventory": "Ansible's, of virtual time",
        "cluster": CLUSTER,
    }
)
def bisect(  # noqa: PLR0917
    _: Context,
    scenario: str,
    tree: str,
    good: str,
    bad: str,
    metric: str = "goodput",
    of: str | None = None,
    profile: str | None = None,
    point: str | None = None,
    seeds: int = 2,
    most: int = 16,
    sure: float = 0.95,
    inventory: str = "inventory/vtime",
    cluster: str = "",
) -> None:
    """Find the commit of a kernel that changed a metric, by git bisect in virtual time (docs/bisect.md).

    The same command goes on where it was interrupted. Exits with 2 if no commit is found.
    """
    from dumbbell.bisection.measure import Sought
    from dumbbell.cli import bisect as command

    command.bisect(
        Sought(known(scenario, "scenarios"), profile, point, metric, of),
        tree,
        (good, bad),
        seeds=int(seeds),
        most=int(most),
        sure=float(sure),
        inventory=known(inventory),
        results=Path("results"),
        cluster=cluster,
    )


@task(
    positional=["candidates"],
    help={
        "candidates": "controls of the kernel, or directories of modules (DIRECTORY[:CONTROL]), with commas",
        "against": "references in place of those that criteria name, with commas between them",
        "kernel": "kernel that the candidates run on: a recipe, a Debian source package, TREE@REVISION",
        "profile": "quick, or full, which has more points",
        "criteria": "directory of the criteria's files",
        "inventory": "Ansible's, of virtual time",
        "results": "directory of runs and pages",
        "name": "directory below results, by default evaluation_CANDIDATES_PROFILE",
    },
)
def evaluate(  # noqa: PLR0917
    _: Context,
    candidates: str,
    against: str = "",
    kernel: str | None = None,
    profile: str = "quick",
    criteria: str = "suites/evaluation",
    inventory: str = "inventory/vtime",
    results: str = "results",
    name: str | None = None,
) -> None:
    """Evaluate congestion controls by the field's criteria, in virtual time (docs/evaluation.md).

    The same command goes on where it was interrupted. Exits with 1 if a criterion fails, and with 2 if one
    has no answer.
    """
    from dumbbell.cli import evaluate as command

    command.evaluate(
        list(filter(None, candidates.split(","))),
        known(inventory),
        Path(results),
        against=list(filter(None, against.split(","))),
        kernel=kernel,
        profile=profile,
        criteria=known(criteria),
        name=name,
    )


@task(
    help={
        "suite": "file of the suite",
        "inventory": "Ansible's, by default the lab's, with --kernel that of virtual time",
        "home": "directory of the nights",
        "now": "run a night; otherwise list what it would run, and how long that takes",
        "kernel": "in virtual time: a recipe, a tree, or either with patches",
        "cluster": CLUSTER,
    }
)
def nightly(  # noqa: PLR0917
    _: Context,
    suite: str = "suites/nightly.yml",
    inventory: str | None = None,
    home: str = "results/nightly",
    now: bool = False,
    kernel: str | None = None,
    cluster: str = "",
) -> None:
    """Run a night now, as the timer of playbooks/nightly.yml does; exits with 1 after a regression."""
    asked = [str(known(suite, "suites")), "--inventory", str(inventory_of(inventory, kernel))]
    night = ["dumbbell.cli.nightly", *asked, "--home", home, "--cluster", cluster]
    night += ["--kernel", kernel] if kernel else []
    what = night if now else ["dumbbell.cli.suite", *asked, "--plan"]
    raise SystemExit(subprocess.run([sys.executable, "-m", *what], check=False).returncode)


@task(
    positional=["file"],
    iterable=["also"],
    help={
        "file": "a report of iperf3 --json, a log of ss, a capture, tcp-info of M-Lab, variables of web100",
        "also": "another file of the same time; once for each",
        "results": "directory in which the new one is made",
        "flows": "the most flows in the report: those that moved most",
    },
)
def read(_: Context, file: str, also: Sequence[str], results: str = "results", flows: int = 32) -> None:
    """Make a directory like that of a run from files of other tools, with its report (docs/read.md)."""
    from dumbbell.cli.read import read as command

    command([Path(each) for each in (file, *also)], Path(results), int(flows))


namespace = Collection(
    ab,
    archive,
    bisect,
    build,
    compare,
    evaluate,
    export,
    figure,
    follow,
    index,
    live,
    new,
    nightly,
    plan,
    read,
    status,
    stop,
    table,
)
