"""An evaluation: candidates and references run the scenarios of all families, and criteria judge them.

What a subject has run is kept by its digest, so that another evaluation with the same subject uses it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dumbbell.analysis import VALID
from dumbbell.evaluation import EvaluationError
from dumbbell.evaluation.criteria import Family, FamilyFile, references
from dumbbell.evaluation.judge import Result, judge
from dumbbell.evaluation.measured import Values, measure, unknown
from dumbbell.evaluation.subject import Subject
from dumbbell.inventory import Inventory
from dumbbell.plan import Plan, plan
from dumbbell.run.directory import RunDir
from dumbbell.scenario import ScenarioError, load
from dumbbell.suite import Entry, Outcome, Suite, about, at_once, ended, find_run, real_ns, run_suite

PROFILES = ("quick", "full")  # a scenario without the profile is run as it is
FULL = "full"
RUNS = "evaluation_runs"  # below the results: a directory for each subject's digest


@dataclass(frozen=True)
class Asked:
    """What a user asks for. ``against`` takes the place of the references that criteria name."""

    candidates: Sequence[Subject]
    files: Sequence[FamilyFile]
    inventory: Path
    results: Path
    profile: str = PROFILES[0]
    against: Sequence[str] = ()


@dataclass(frozen=True)
class Judgement:
    """The results of all criteria, by candidate."""

    asked: Asked
    references: Sequence[str]
    results: Mapping[str, Sequence[Result]]
    points: int  # that each subject runs

    @property
    def others(self) -> list[str]:
        """The references that are no candidates."""
        return [name for name in self.references if name not in self.results]

    @property
    def families(self) -> Iterator[tuple[Family, Mapping[str, Sequence[Result]]]]:
        """Each family with the results of all candidates."""
        for file in self.asked.files:
            found = {
                name: [result for result in results if result.family is file.family]
                for name, results in self.results.items()
            }
            if any(found.values()):
                yield file.family, found


class Evaluation:
    """Plans, runs and judges. ScenarioError, InventoryError, KernelError or EvaluationError at first."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self._inventory = Inventory.read(asked.inventory)
        if not self._inventory.virtual:
            raise EvaluationError(
                f"{asked.inventory} is of real time; candidates are evaluated in virtual time, "
                "inventory/vtime"
            )
        names = [of.name for of in asked.candidates]
        if twice := {name for name in names if names.count(name) > 1}:
            raise EvaluationError(f"{', '.join(sorted(twice))}: name each candidate once")
        self.references = list(asked.against or references(asked.files))
        for of in asked.candidates:
            if of.module is not None and of.name in self.references:
                raise EvaluationError(
                    f"{of.module}: its control has the name of a reference, {of.name}; give it another name"
                )
        others = [Subject.of(name) for name in self.references if name not in names]
        self.subjects = [*asked.candidates, *others]
        self._families: dict[str, list[Family]] = {}  # by the file of their scenario
        for file in asked.files:
            self._families.setdefault(file.family.scenario, []).append(file.family)
        self._refuse_unknown()
        self._homes = {of.name: self._home(of) for of in self.subjects}
        self._suites = {of.name: self._suite(of) for of in self.subjects}
        self.plans = {of.name: [*self._planned(self._suites[of.name])] for of in self.subjects}

    def announced(self) -> str:
        """What is left to run, and about how long that takes."""
        lines = []
        total_ns = 0.0
        for of in self.subjects:
            plans = self.plans[of.name]
            left = [wanted for wanted in plans if not self._done(of, wanted)]
            takes_ns = sum(map(real_ns, left)) / at_once(self._inventory)
            points = sum(len(wanted.points) for wanted in left)
            if not left:
                lines.append(f"{of.name}: its results are there")
                continue
            lines.append(f"{of.name}: {points} points, about {about(takes_ns)}")
            total_ns += takes_ns
        return "\n".join([*lines, f"In all about {about(total_ns)}."])

    def run(self, say: Callable[[str], None], log: IO[str]) -> None:
        """Run what has no result yet; EvaluationError if a subject cannot be run at all."""
        for of in self.subjects:
            suite, home = self._suites[of.name], self._homes[of.name]
            for number, outcome in enumerate(
                run_suite(suite, self.asked.inventory, home, kernel=of.kernel, module=of.module, log=log)
            ):
                say(f"{of.name}: {Path(outcome.entry.scenario).stem}: {outcome.state}")
                if number == 0:
                    self._refuse_failed(of, outcome, log.name)

    def judged(self) -> Judgement:
        """Judge what has been run."""
        values: dict[str, Values] = {of.name: self._values(of) for of in self.subjects}
        results = {
            of.name: [
                result
                for file in self.asked.files
                for result in judge(file.family, of.name, values, self.asked.against)
            ]
            for of in self.asked.candidates
        }
        points = sum(len(wanted.points) for wanted in self.plans[self.asked.candidates[0].name])
        return Judgement(self.asked, self.references, results, points)

    def _values(self, of: Subject) -> Values:
        found: Values = {}
        for families, wanted in zip(self._families.values(), self.plans[of.name], strict=True):
            run = find_run(self._homes[of.name], wanted)
            criteria = [criterion for family in families for criterion in family.criteria]
            found |= measure(wanted, run, criteria)
        return found

    def _refuse_unknown(self) -> None:
        """ScenarioError with what criteria name that no point of their scenarios has, in any profile."""
        problems = []
        for file in self.asked.files:
            source = Path(file.family.scenario)
            if not source.is_file():
                problems.append(file.tree.problem(("scenario",), f"there is no file {source}"))
                continue
            try:
                points = plan(source, self._inventory, _profile(source, FULL)).points
            except ScenarioError as error:
                problems += error.problems
                continue
            for i, of in enumerate(file.family.criteria):
                problems += [
                    file.tree.problem(("criteria", i, *key), reason) for key, reason in unknown(of, points)
                ]
        if problems:
            raise ScenarioError(problems)

    def _refuse_failed(self, of: Subject, outcome: Outcome, log: str) -> None:
        """A subject whose first run has no valid point is not run further."""
        points = [] if outcome.run_dir is None else RunDir.open(outcome.run_dir).executions
        if outcome.state in VALID or any(execution.finished for execution in points):
            return
        raise EvaluationError(f"{of.name} cannot be run: {'; '.join(outcome.reasons)}; see {log}")

    def _home(self, of: Subject) -> Path:
        return self.asked.results / RUNS / f"{of.file_name}-{of.digest(self.asked.inventory)}"

    def _suite(self, of: Subject) -> Suite:
        """The scenarios with this subject in them, in the order of their families."""
        home = self._homes[of.name] / "scenarios"
        runs = []
        for scenario in self._families:
            source = Path(scenario)
            target = home / source.name
            of.write_scenario(source, target)
            runs.append(Entry(scenario=str(target), profile=_profile(source, self.asked.profile)))
        return Suite(name="evaluation", title="Evaluation", runs=runs)

    def _planned(self, suite: Suite) -> Iterator[Plan]:
        for entry in suite.runs:
            yield plan(Path(entry.scenario), self._inventory, entry.profile)

    def _done(self, of: Subject, wanted: Plan) -> bool:
        found = find_run(self._homes[of.name], wanted)
        return found is not None and ended(found)


def _profile(source: Path, name: str) -> str | None:
    """The profile that a scenario has of this name; None if it is run as it is."""
    profiles = load(source).tree.value.get("profiles") or {}
    return name if name in profiles else None
