"""Runs of a suite, found by their plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from csv import DictReader
from dataclasses import dataclass
from pathlib import Path

from dumbbell.plan import Inventory, Plan
from dumbbell.run.directory import RunDir, point_folders
from dumbbell.studies.points import Points
from dumbbell.studies.source import Missing
from dumbbell.suite import Suite, ended, find_run, planned

Entry = tuple[str, str]  # name of a scenario, and its profile


class NotRun(Missing):
    """No run of this plan has come to its end."""


@dataclass(frozen=True)
class Runs:
    """The runs of a suite below a directory of results."""

    results: Path
    plans: Mapping[Entry, Plan]

    @classmethod
    def of(cls, suite: Suite, inventory: Inventory, results: Path) -> Runs:
        """ScenarioError if an entry cannot be planned."""
        plans = planned(suite, inventory)
        names = [(Path(entry.scenario).stem, entry.profile or "") for entry in suite.runs]
        return cls(results, dict(zip(names, plans, strict=True)))

    def run(self, scenario: str, profile: str = "") -> RunDir:
        """The last run of an entry that has come to its end, or NotRun."""
        begun = find_run(self.results, self.plans[scenario, profile])
        if begun is None or not ended(begun):
            raise NotRun(f"{scenario}{f' with profile {profile}' if profile else ''} was not run yet.")
        return begun

    def points(self, scenario: str, profile: str = "", **levels: str | None) -> list[Path]:
        """Directories of the valid points of an entry's run with these levels; Missing if none is valid.

        The level ``baseline`` is by default none.
        """
        run = self.run(scenario, profile)
        found = Points.open(run.dir)
        wanted = {"baseline": None} | levels
        kept = []
        for row in found.valid.iter_rows(named=True):
            own = {"baseline": row["baseline"]} | {
                name.removeprefix("level_"): text for name, text in row.items() if name.startswith("level_")
            }
            if all(own.get(name) == level for name, level in wanted.items()):
                kept.append(found.dirs[row["place"]])
        if not kept:
            which = ", ".join(f"{name} {level}" for name, level in levels.items())
            raise Missing(f"No valid point of {scenario} {profile} has {which or 'what is shown'}.")
        return kept

    def took_s(self) -> Iterator[tuple[Entry, int, float | None]]:
        """Of each entry its points, and the real time (s) of its worlds together; None if it was not run."""
        for entry, plan in self.plans.items():
            try:
                folder = self.run(*entry).dir
            except NotRun:
                yield entry, len(plan.points), None
                continue
            folders = point_folders(folder) or [folder]
            yield entry, len(plan.points), sum(map(_world_s, folders))


def _world_s(point: Path) -> float:
    try:
        with (point / "world" / "time.csv").open() as file:
            return max((float(row["real_s"]) for row in DictReader(file)), default=0)
    except OSError:
        return 0
