"""Criteria: what is measured at which points, and the bound by which a congestion control passes.

Each file of ``suites/evaluation`` has a family of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, Union

from pydantic import AfterValidator, Field, model_validator

from dumbbell.metrics.registry import METRICS
from dumbbell.places import REPOSITORY, known
from dumbbell.quantities import Name, Strict
from dumbbell.scenario import ScenarioError
from dumbbell.scenario.expect import Measurement, model_of, refuse_bounds
from dumbbell.scenario.load import read_as
from dumbbell.scenario.tree import Tree

FOLDER = REPOSITORY / "suites" / "evaluation"
Text = Annotated[str, Field(min_length=1)]


class Relative(Strict):
    """A bound as a multiple of another value of the same metric.

    That of references at the same point, the most lenient of them, or that of the candidate itself at
    another point.
    """

    to: Annotated[list[Name], Field(min_length=1)] | None = None  # references; None: the candidate itself
    # Levels of the other point, in place of the same levels of this one.
    at: dict[str, Any] = Field(default={})
    min: Annotated[float, Field(gt=0)] | None = None
    max: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        refuse_bounds(self.min, self.max)
        if self.to is None and not self.at:
            raise ValueError("give `to`, names of references, or `at`, levels of another point")
        return self


class BaseCriterion(Measurement):
    """A metric with its bound: absolute (`min`, `max`), or `relative` to another value."""

    name: Name
    title: Text
    lacks: str = ""  # what it does not show
    source: Text
    relative: Relative | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        low, high = getattr(self, "min"), getattr(self, "max")  # noqa: B009
        if self.relative is None:
            try:
                refuse_bounds(low, high)
            except ValueError as error:
                raise ValueError(f"{error}, or `relative`") from None
        elif low is not None or high is not None:
            raise ValueError("give absolute bounds (min, max) or `relative`, not both")
        return self


MODELS = [model_of(metric, BaseCriterion) for metric in METRICS.values()]
Criterion: Any = Annotated[Union[*MODELS], Field(discriminator="metric")]


class Family(Strict):
    """Criteria of one subject, all measured in one scenario."""

    name: Name
    title: Text
    shows: Text
    lacks: Text
    # Its file, which is here or one of Dumbbell's; it has a value `control` in its matrix.
    scenario: Annotated[Text, AfterValidator(lambda path: str(known(path)))]
    criteria: Annotated[list[Criterion], Field(min_length=1)]


@dataclass(frozen=True)
class FamilyFile:
    """A family, and where each of its keys is."""

    tree: Tree
    family: Family


def load(folder: Path = FOLDER) -> list[FamilyFile]:
    """Read all files of a directory; :class:`ScenarioError` with everything that is wrong in them."""
    found, problems = [], []
    for path in sorted(folder.glob("*.yml")):
        try:
            found.append(FamilyFile(*read_as(path, Family)))
        except ScenarioError as error:
            problems += error.problems
    times = Counter(of.name for file in found for of in file.family.criteria)
    for file in found:
        for i, of in enumerate(file.family.criteria):
            if times[of.name] > 1:
                key = ("criteria", i, "name")
                problems.append(file.tree.problem(key, f"{times[of.name]} criteria have the name {of.name}"))
    if problems:
        raise ScenarioError(problems)
    return found


def references(files: Sequence[FamilyFile]) -> Iterator[str]:
    """The references that criteria name, each once."""
    named = (of.relative.to or () for file in files for of in file.family.criteria if of.relative)
    yield from dict.fromkeys(name for names in named for name in names)
