"""A commit's values of a metric, measured in virtual time: its kernel is built, and seeds are run on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Protocol

from dumbbell.analysis import VALID
from dumbbell.inventory import Inventory
from dumbbell.kernels import DoesNotBuild, KernelError, build
from dumbbell.metrics.registry import METRICS
from dumbbell.metrics.values import measurable, values
from dumbbell.plan import Plan, plan
from dumbbell.run.directory import RunDir
from dumbbell.suite import Entry, ended, find_run, outcome_of, run_entry
from dumbbell.words import known_are

_MOST_REASON = 300  # letters


class Untestable(Exception):
    """A commit that says nothing: it does not build, does not boot, or its runs are not valid."""


class Failed(Exception):
    """The testbed failed, not the commit; the message says what to do."""


class Measure(Protocol):
    """What gives a commit's values. Both methods raise :class:`Untestable`, and :class:`Failed`."""

    def build(self, commit: str) -> None:
        """Build its kernel, if it is not built."""

    def values(self, commit: str, seeds: int) -> list[float]:
        """Its value of the metric with each of so many seeds, those of fewer seeds first."""

    def reports(self, commit: str) -> list[str]:
        """Reports of its runs, as paths from the bisection's directory."""


@dataclass(frozen=True)
class Sought:
    """The metric that a bisection is about, of a point of a scenario."""

    scenario: Path
    profile: str | None
    point: str | None
    metric: str
    of: str | None  # which flow's or ping's; None if there is one


class InVirtualTime:
    """Measures in ``folder``, on kernels of the commits of a git tree.

    ``looks`` are the numbers of seeds that can be asked for. ValueError, ScenarioError or InventoryError if
    the scenario has no such metric, or several.
    """

    def __init__(
        self, folder: Path, tree: str, sought: Sought, inventory: Path, looks: Sequence[int]
    ) -> None:
        self.folder = folder.resolve()  # as a run's own directory is
        self.tree, self.sought, self.inventory = tree, sought, inventory
        hosts = Inventory.read(inventory)
        if not hosts.virtual:
            raise ValueError(f"{inventory} is of real time: a bisection takes virtual time, inventory/vtime")
        first = _one_point(plan(sought.scenario, hosts, sought.profile), sought).seed
        self.entry = Entry(scenario=str(sought.scenario), profile=sought.profile)
        # Each look adds a batch of seeds, with a run of its own: those before are not measured again.
        self.batches: list[tuple[int, Plan]] = []
        for number, (before, seeds) in enumerate(pairwise((0, *looks))):
            wanted = plan(sought.scenario, hosts, sought.profile, first + number, seeds - before)
            self.batches.append((seeds, _one_point(wanted, sought)))

    def build(self, commit: str) -> None:
        """By ``playbooks/kernel_build.yml``, from the objects of the commit before."""
        try:
            with self._log() as log:
                build(self._asked(commit), log)
        except DoesNotBuild as reason:
            raise Untestable(f"does not build: {reason.first_error[:_MOST_REASON]}") from None
        except KernelError as reason:
            raise Failed(f"{reason}; see {self.folder / 'playbooks.log'}") from None

    def values(self, commit: str, seeds: int) -> list[float]:
        """By runs below ``runs/COMMIT``; those that are there are not run again."""
        found: list[float] = []
        for last, wanted in self.batches:
            found += self._of_batch(commit, wanted)
            if last >= seeds:
                break
        return found[:seeds]

    def reports(self, commit: str) -> list[str]:
        """One for each batch of seeds."""
        runs = (find_run(self._results(commit), wanted) for *_, wanted in self.batches)
        files = [run.dir / "report.html" for run in runs if run]
        return [str(file.relative_to(self.folder)) for file in files if file.exists()]

    def _of_batch(self, commit: str, wanted: Plan) -> list[float]:
        results = self._results(commit)
        run = find_run(results, wanted)
        if run is None or not ended(run):
            results.mkdir(parents=True, exist_ok=True)
            with self._log() as log:
                run_entry(
                    self.entry,
                    self.inventory,
                    results,
                    virtual=True,
                    begun=run,
                    point=self.sought.point,
                    seed=wanted.seed,
                    repetitions=len(wanted.points),
                    kernel=self._asked(commit),
                    log=log,
                )
            run = find_run(results, wanted)
        if run is None:
            raise Failed(f"playbooks/virtual.yml did not begin a run; see {self.folder / 'playbooks.log'}")
        outcome = outcome_of(self.entry, run)
        if outcome.state not in VALID:
            raise Untestable(f"its run is {outcome.state}: {'; '.join(outcome.reasons)[:_MOST_REASON]}")
        return self._read(run)

    def _read(self, run: RunDir) -> list[float]:
        table = values(run.dir)
        rows = table.filter(table["metric"] == self.sought.metric)
        subjects = list(dict.fromkeys(rows["subject"]))
        if self.sought.of is not None:
            rows = rows.filter(rows["subject"] == self.sought.of)
        elif len(subjects) > 1:
            raise Failed(f"{self.sought.metric} has several values, choose with --of: {', '.join(subjects)}")
        found = [float(value) for value in rows.sort("repetition")["value"]]
        if len(found) != len(run.executions):
            raise Untestable(
                f"{len(found)} of {len(run.executions)} seeds have a value of {self.sought.metric}"
            )
        return found

    def _results(self, commit: str) -> Path:
        return self.folder / "runs" / commit[:12]

    def _asked(self, commit: str) -> str:
        return f"{self.tree}@{commit}"

    def _log(self) -> IO[str]:
        return (self.folder / "playbooks.log").open("a")


def _one_point(wanted: Plan, sought: Sought) -> Plan:
    """The plan with its only point, or the one that is asked for; ValueError without the metric."""
    labels = {point.id: point.label for point in wanted.points}
    if sought.point is None and len(labels) > 1:
        known = "\n".join(f"{name}  {label}" for name, label in labels.items())
        raise ValueError(f"{wanted.scenario} has several points; choose one with --point:\n{known}")
    points = [point for point in wanted.points if sought.point in (None, point.id)]
    if not points:
        raise ValueError(
            f"{wanted.scenario} has no point {sought.point}{known_are(str(sought.point), labels)}"
        )
    compared = [name for name, metric in METRICS.items() if metric.compared]
    if sought.metric not in compared:
        raise ValueError(f"there is no metric {sought.metric}{known_are(sought.metric, compared)}")
    names = measurable(points[0]).get(sought.metric, [])
    if not names:
        raise ValueError(f"no flow of {wanted.scenario} has {sought.metric}")
    if not METRICS[sought.metric].shared:
        if sought.of is None and len(names) > 1:
            raise ValueError(f"choose with --of whose {sought.metric}: {', '.join(sorted(names))}")
        if sought.of is not None and sought.of not in names:
            raise ValueError(f"{sought.of} has no {sought.metric}{known_are(sought.of, names)}")
    return wanted.model_copy(update={"points": points})
