"""Expansion of a scenario: every combination of the values that vary."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from dumbbell import units
from dumbbell.quantities import Strict
from dumbbell.scenario.document import Matrix, Scenario
from dumbbell.scenario.problems import KeyPath, Problem, ScenarioError
from dumbbell.scenario.tree import Tree
from dumbbell.words import did_you_mean, known_are

MAX_POINTS = 10_000
MAX_COMBINATIONS = 1_000_000  # of some quantities, after what `exclude` takes away
MAX_DEPTH = 10  # of references between values of the matrix

_REFERENCE = re.compile(rf"(?:({units.NUMBER}) ?\* ?)?\$([A-Za-z_][A-Za-z0-9_]*)")
# Keys that cannot vary between points, or whose value is a list anyway.
FIXED = (
    "name",
    "title",
    "seed",
    "matrix",
    "repetitions",
    "order",
    "roles",
    "baselines",
    "expect",
    "primary",
    "profiles",
)


@dataclass(frozen=True)
class Case:
    """One combination: the scenario with its values filled in, and the name of each value."""

    value: Any
    levels: Mapping[str, str]


@dataclass(frozen=True)
class _Axis:
    """A quantity that varies: its values by name, and its place in the file if it has only one."""

    key: KeyPath
    values: dict[str, Any]
    in_place: bool


def expand(tree: Tree, matrix: Matrix) -> tuple[list[Case], dict[str, KeyPath]]:
    """Every combination in the order of the file, and the place of each quantity that varies.

    :class:`ScenarioError` if there is none.
    """
    expansion = _Expansion(tree, matrix)
    return expansion.cases(), {name: axis.key for name, axis in expansion.axes.items()}


class _Expansion:
    def __init__(self, tree: Tree, matrix: Matrix) -> None:
        self.tree = tree
        self.matrix = matrix
        self.problems: list[Problem] = []
        self.axes: dict[str, _Axis] = {}
        self.constants: dict[str, Any] = {}

    def cases(self) -> list[Case]:
        for name, values in (self.matrix.__pydantic_extra__ or {}).items():
            key: KeyPath = ("matrix", name)
            if isinstance(values, list):
                self._add(key, name, values, in_place=False)
            elif isinstance(values, dict):
                self.axes[name] = _Axis(key, values, in_place=False)
            else:
                self.constants[name] = values
        for key, values in _sweeps(self.tree.value, ()):
            self._add(key, str(key[-1]), values, in_place=True)
        self._check_references()
        if self.problems:
            raise ScenarioError(self.problems)

        kept = [*self._not_excluded(), *self._included()]
        if not kept and not self.problems:
            self._refuse(("matrix", "exclude"), "leaves nothing to run")
        self._check_number(len(kept))
        if self.problems:
            raise ScenarioError(self.problems)
        cases = [self._case(levels) for levels in kept]
        if self.problems:
            raise ScenarioError(self.problems)
        return cases

    def _refuse(self, key: KeyPath, reason: str) -> None:
        self.problems.append(self.tree.problem(key, reason))

    # the quantities that vary

    def _add(self, key: KeyPath, name: str, values: list[Any], *, in_place: bool) -> None:
        if not values:
            self._refuse(key, "an empty list has no value to run with")
            return
        if name in self.axes or name in self.constants:
            self._refuse(
                key, f"something else that varies is called {name}: name both in matrix, use $NAME here"
            )
            return
        labelled: dict[str, Any] = {}
        for i, value in enumerate(values):
            if isinstance(value, dict | list) or value is None:
                self._refuse((*key, i), "one value is expected; others get a name each in matrix")
            elif (label := text(value)) in labelled:
                self._refuse((*key, i), f"{label} is there already")
            else:
                labelled[label] = value
        self.axes[name] = _Axis(key, labelled, in_place)

    def _check_references(self) -> None:
        """Every reference has a value, and every value a reference: otherwise points could be equal."""
        used: set[str] = set()
        matrix = self.matrix.__pydantic_extra__ or {}
        for key, found in _texts(_without(self.tree.value, "matrix", "profiles"), ()):
            used.update(self._referred(key, found))
        for key, found in _texts(matrix, ("matrix",)):
            used.update(self._referred(key, found))
        for name in matrix:
            if name not in used:
                self._refuse(("matrix", name), f"nothing refers to it: write ${name} where its values belong")

    def _referred(self, key: KeyPath, found: str) -> Iterator[str]:
        if match := _REFERENCE.fullmatch(found):
            name = match[2]
            known = [n for n in (*self.axes, *self.constants) if n in (self.matrix.__pydantic_extra__ or {})]
            if name in known:
                yield name
            else:
                self._refuse(key, f"the matrix has no {name}{known_are(name, known)}")

    # combinations

    def _not_excluded(self) -> list[dict[str, str]]:
        excluded = []
        for i, asked in enumerate(self.matrix.exclude):
            labels = {}
            for name, value in asked.items():
                if self._axis(("matrix", "exclude", i, name), name):
                    labels[name] = text(value)
                    self._label(("matrix", "exclude", i, name), name, labels[name])
            if labels:
                excluded.append(labels.items())
        left: list[dict[str, str]] = [{}]
        for name, axis in self.axes.items():
            more = (each | {name: label} for each in left for label in axis.values)
            kept = (each for each in more if not any(labels <= each.items() for labels in excluded))
            left = list(itertools.islice(kept, MAX_COMBINATIONS + 1))
            if len(left) > MAX_COMBINATIONS:
                reason = f"more than {MAX_COMBINATIONS} combinations are left of what varies down to {name}"
                self._refuse(("matrix",), reason)
                return []
        return left

    def _check_number(self, combinations: int) -> None:
        """The limits on runs: the points of a run are kept in memory and numbered."""
        asked = self.tree.value if isinstance(self.tree.value, dict) else {}  # otherwise refused as a whole
        repetitions = asked.get("repetitions", 1)
        repetitions = repetitions if isinstance(repetitions, int) else 1
        if combinations * repetitions > MAX_POINTS:
            times = f", each {repetitions} times," if repetitions > 1 else ""
            key: KeyPath = ("matrix",) if "matrix" in asked else ("repetitions",)
            self._refuse(key, f"{combinations} combinations{times} are more than {MAX_POINTS} points")

    def _included(self) -> Iterator[dict[str, str]]:
        for i, included in enumerate(self.matrix.include):
            key: KeyPath = ("matrix", "include", i)
            labels = {}
            for name, value in included.items():
                if self._axis((*key, name), name):
                    labels[name] = text(value)
                    if any(isinstance(v, dict) for v in self.axes[name].values.values()):
                        self._label((*key, name), name, labels[name])
                    self.axes[name].values.setdefault(labels[name], value)
            if missing := [name for name in self.axes if name not in included]:
                self._refuse(key, f"give a value of {', '.join(missing)} too")
            elif len(labels) == len(self.axes):
                yield {name: labels[name] for name in self.axes}

    def _axis(self, key: KeyPath, name: str) -> bool:
        if name not in self.axes:
            self._refuse(key, f"nothing of this name varies{did_you_mean(name, self.axes)}")
        return name in self.axes

    def _label(self, key: KeyPath, name: str, label: str) -> None:
        if label not in self.axes[name].values:
            self._refuse(key, f"{label} is none of its values {', '.join(self.axes[name].values)}")

    # filling in values

    def _case(self, levels: dict[str, str]) -> Case:
        values = self.constants | {name: self.axes[name].values[label] for name, label in levels.items()}
        swept = {axis.key: values[name] for name, axis in self.axes.items() if axis.in_place}
        value = self._in_place(_without(self.tree.value, "matrix", "profiles"), (), values, swept)
        return Case(value, levels)

    def _in_place(
        self, value: Any, key: KeyPath, values: dict[str, Any], swept: dict[KeyPath, Any], depth: int = 0
    ) -> Any:
        if key in swept and depth == 0:
            value = swept[key]
        if isinstance(value, dict):
            return {k: self._in_place(v, (*key, k), values, swept, depth) for k, v in value.items()}
        if isinstance(value, list):
            return [self._in_place(v, (*key, i), values, swept, depth) for i, v in enumerate(value)]
        if not isinstance(value, str) or not (match := _REFERENCE.fullmatch(value)):
            return value
        if depth == MAX_DEPTH:
            self._refuse(key, f"${match[2]} stands for itself")
            return value
        referred = self._in_place(values[match[2]], key, values, swept, depth + 1)
        try:
            return referred if match[1] is None else _times(Decimal(match[1]), referred)
        except ValueError as error:
            self._refuse(key, f"{value}: {error}")
            return value


def _times(factor: Decimal, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{text(value)} is not a quantity")
    if isinstance(value, str):
        return units.scale(factor, value)
    product = factor * Decimal(str(value))
    return int(product) if product == product.to_integral_value() else float(product)


def text(value: Any) -> str:
    """A value as text in the file's notation, used as its name."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def concerns(when: Mapping[str, Any], levels: Mapping[str, str]) -> bool:
    """Whether a point with these levels is meant: each is the value, or one of a list of values."""
    return all(
        levels.get(name) in [text(value) for value in (wanted if isinstance(wanted, list) else [wanted])]
        for name, wanted in when.items()
    )


def _without(value: Any, *keys: str) -> Any:
    return {k: v for k, v in value.items() if k not in keys} if isinstance(value, dict) else value


def _sweeps(value: Any, key: KeyPath) -> Iterator[tuple[KeyPath, list[Any]]]:
    """Lists at keys that take a single value: sweeps."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if key or name not in FIXED:
                yield from _sweeps(inner, (*key, name))
    elif isinstance(value, list) and key and key[-1] not in LISTS:
        yield key, value
    elif isinstance(value, list):
        for i, item in enumerate(value):
            if isinstance(item, dict):
                yield from _sweeps(item, (*key, i))


def _texts(value: Any, key: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, (*key, name))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _texts(inner, (*key, i))


def models(annotation: Any) -> Iterator[type[Strict]]:
    """The models in a type, without those nested in their fields."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for argument in get_args(annotation):
        yield from models(argument)


@cache
def all_models(model: type[Strict] = Scenario) -> tuple[type[Strict], ...]:
    """A model and all models nested in it, each after the first that uses it."""
    found = [model]
    for field in model.model_fields.values():
        for part in models(field.annotation):
            found += [inner for inner in all_models(part) if inner not in found]
    return tuple(found)


def is_list(annotation: Any) -> bool:
    """Whether a key of this type takes a list."""
    if get_origin(annotation) in (Annotated, Union, type(int | None)):
        return any(map(is_list, get_args(annotation)))
    return get_origin(annotation) is list


def fields_of(model: type[Strict]) -> Iterator[tuple[str, Any]]:
    """The keys of a model as they are written in files, with their fields."""
    for name, field in model.model_fields.items():
        yield field.alias or name, field


# Keys whose value is a list; any other list is a sweep.
LISTS = frozenset(
    key for model in all_models() for key, field in fields_of(model) if is_list(field.annotation)
)
