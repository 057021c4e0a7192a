"""From a YAML file to the cases of a scenario; every error gives its line in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import pydantic

from dumbbell import units
from dumbbell.kinds.asked import ASKED
from dumbbell.scenario.document import Matrix, Scenario
from dumbbell.scenario.expand import Case, all_models, expand, fields_of
from dumbbell.scenario.problems import Key, KeyPath, Problem, ScenarioError
from dumbbell.scenario.tree import Tree, read
from dumbbell.words import did_you_mean, known_are

Read = TypeVar("Read")


@dataclass(frozen=True)
class ScenarioCase:
    """A scenario with a value for everything that varies, and the name of each value."""

    levels: Mapping[str, str]
    scenario: Scenario


@dataclass(frozen=True)
class ScenarioFile:
    """The cases of a scenario, and the position of each key in the file."""

    tree: Tree
    cases: list[ScenarioCase]
    varies: Mapping[str, KeyPath]  # the position of each quantity that varies
    traces: frozenset[str]  # files that it names, of all profiles, from its directory on

    @property
    def scenario(self) -> Scenario:
        """The first case: it has the name, seed, order and everything else that does not vary."""
        return self.cases[0].scenario


def load(
    path: Path, profile: str | None = None, over: Mapping[str, Any] = MappingProxyType({})
) -> ScenarioFile:
    """Read a scenario file; :class:`ScenarioError` lists everything wrong in it, in any profile.

    ``profile`` may name several, ``first,second``; each is merged over the result of those before it.
    ``over`` has values that take the place of what the file says at its top level.
    """
    tree = read(path)
    problems = list(tree.problems)
    profiles = tree.value.get("profiles") if isinstance(tree.value, dict) else None
    names = [n for n, p in profiles.items() if isinstance(p, dict)] if isinstance(profiles, dict) else []
    asked = tuple(profile.split(",")) if profile is not None else ()
    for name in asked:
        if name not in names:
            reason = f"the scenario has no profile {name}{known_are(name, names)}"
            problems.append(tree.problem(("profiles",), reason))
    files: dict[tuple[str, ...], ScenarioFile] = {}
    for chosen in dict.fromkeys([(), *((name,) for name in names), asked]):
        merged = tree
        for name in chosen:
            if name in names:
                merged = merged.merged(("profiles", name))
        if chosen == asked:
            merged = merged.with_values(over)
        try:
            files[chosen] = _validated(merged)
        except ScenarioError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise ScenarioError(problems)
    named = frozenset[str]().union(*(file.traces for file in files.values()))
    return replace(files[asked], traces=named)


def traces_of(path: Path) -> frozenset[str]:
    """The files beside a scenario without which it cannot be read."""
    return load(path).traces if b"rate_trace" in path.read_bytes() else frozenset()


def _validated(tree: Tree) -> ScenarioFile:
    matrix = Matrix.model_validate({})
    if isinstance(tree.value, dict) and "matrix" in tree.value:
        try:
            matrix = Matrix.model_validate(tree.value["matrix"])
        except pydantic.ValidationError as error:
            wrong = reasons(error, tree.value["matrix"])
            raise ScenarioError(tree.problem(("matrix", *k), reason) for k, reason in wrong) from None

    found: dict[Problem, list[Case]] = {}
    cases, traces = [], set[str]()
    expanded, varies = expand(tree, matrix)
    for case in expanded:
        try:
            duration = case.value.get("duration") if isinstance(case.value, dict) else None
            context = {"directory": tree.path.parent, "duration": duration, "traces": traces}
            scenario = Scenario.model_validate(case.value, context=context)
        except pydantic.ValidationError as error:
            problems = [tree.problem(*reason) for reason in reasons(error, case.value)]
        else:
            cases.append(ScenarioCase(case.levels, scenario))
            problems = [tree.problem(*reason) for reason in _contradictions(scenario, case.levels)]
        for problem in problems:
            found.setdefault(problem, []).append(case)
    if found:
        raise ScenarioError(among(problem, [c.levels for c in at], expanded) for problem, at in found.items())
    return ScenarioFile(tree, cases, varies, frozenset(traces))


def among(problem: Problem, at: list[Mapping[str, str]], cases: list[Any]) -> Problem:
    """A problem that only some cases have, with the name of the first one added."""
    if len(at) == len(cases):
        return problem
    where = ", ".join(f"{name} {label}" for name, label in at[0].items())
    return Problem(
        problem.file, problem.line, problem.column, problem.key, f"{problem.reason} (with {where})"
    )


# --- pydantic's errors, in terms of the file -----------------------------------------------------------


def read_as(path: Path, kind: type[Read]) -> tuple[Tree, Read]:
    """Read a YAML file as a type that pydantic knows, and where its keys are.

    :class:`ScenarioError` with everything that is wrong in it.
    """
    tree = read(path)
    problems = list(tree.problems)
    try:
        found = pydantic.TypeAdapter(kind).validate_python(tree.value)
    except pydantic.ValidationError as error:
        problems += [tree.problem(*reason) for reason in reasons(error, tree.value)]
    if problems:
        raise ScenarioError(problems)
    return tree, found


def reasons(error: pydantic.ValidationError, value: Any) -> list[tuple[KeyPath, str]]:
    """The faults of a value, each with its key."""
    # A value that fits no member of a union has one error per member: one is enough.
    found: dict[KeyPath, str] = {}
    for key, reason in (_explain(item, value) for item in error.errors()):
        found[key] = f"{found[key]}, or {reason}" if key in found else reason
    return list(found.items())


def _explain(error: Any, value: Any) -> tuple[KeyPath, str]:
    """The key path and the reason of one of pydantic's errors.

    Pydantic's locations contain the chosen member of a union, which is not a key of the file.
    """
    key: list[Key] = []
    location = [part for part in error["loc"] if part != "[key]"]
    around: Any = {}
    for part in location:
        if _has(value, part):
            key.append(part)
            around, value = value, value[part]
    if error["type"] == "missing":
        key.append(location[-1])
    given, context = error["input"], error.get("ctx", {})
    reason: str = error["msg"].removeprefix("Input ")
    match error["type"]:
        case "extra_forbidden":
            reason = _unknown(str(key[-1]), around)
        case "missing":
            reason = "missing"
        case "union_tag_not_found":
            key.append(context["discriminator"].strip("'"))
            kinds = f", give one of {', '.join(ASKED)}" if location[0] == "flows" else ""
            reason = f"missing{kinds}"
        case "union_tag_invalid" if context["discriminator"].startswith("'"):
            key.append(context["discriminator"].strip("'"))
            reason = f"{context['tag']!r} is not one of {context['expected_tags'].replace(chr(39), '')}"
        case "literal_error":
            reason = f"{given!r} is not one of {context['expected']}"
        case "value_error":
            reason = str(context["error"])
        case "string_pattern_mismatch":
            reason = f"{given!r} does not have the form {context['pattern']}"
        case "model_type" | "model_attributes_type" | "dict_type":
            reason = "a mapping of keys to values is expected"
        case _ if not isinstance(given, dict | list):
            reason = f"{given!r} {reason}"
    return tuple(key), reason


def _has(value: Any, part: Key) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value)


def _unknown(key: str, around: Mapping[str, Any]) -> str:
    """The message for an unknown key; the keys beside it show which one was meant."""
    models = [{name for name, _ in fields_of(model)} for model in all_models()]
    anywhere = sorted(set().union(*models))
    if key in anywhere:
        return "is no key here"
    here = max(models, key=lambda names: len(names & around.keys()))
    return f"unknown key{did_you_mean(key, sorted(here)) or did_you_mean(key, anywhere)}"


# --- errors between keys -------------------------------------------------------------------------------


def _contradictions(scenario: Scenario, levels: Mapping[str, str]) -> Iterator[tuple[KeyPath, str]]:
    """Contradictions between keys, each reported at the key that a person would change."""
    if scenario.warm_up >= scenario.duration:
        yield ("warm_up",), f"is no part of the duration of {units.render_duration(scenario.duration)}"
    yield from _changes(scenario)
    for name, flow in scenario.flows.items():
        if flow.src == flow.dst:
            yield ("flows", name, "to"), f"both ends are {flow.dst}"
    for name, flows in scenario.baselines.items():
        for i, flow_name in enumerate(flows):
            if flow_name not in scenario.flows:
                hint = did_you_mean(flow_name, scenario.flows)
                yield ("baselines", name, i), f"there is no flow {flow_name}{hint}"
        if set(flows) == set(scenario.flows):
            yield ("baselines", name), "is the scenario itself, with all its flows"
    for i, bound in enumerate(scenario.expect):
        if bound.window is not None and bound.window.end > scenario.duration:
            most = units.render_duration(scenario.duration)
            yield ("expect", i, "window"), f"ends after the scenario's duration of {most}"
        for name in bound.when:
            if name not in levels and name != "baseline":
                yield ("expect", i, "when", name), f"nothing of this name varies{did_you_mean(name, levels)}"
        baseline = bound.when.get("baseline")
        if baseline is not None and baseline not in list(scenario.baselines):  # it may be a list itself
            yield ("expect", i, "when", "baseline"), f"there is no baseline {baseline}"


def _changes(scenario: Scenario) -> Iterator[tuple[KeyPath, str]]:
    for name, way in scenario.path or ():
        if way is not None:
            for key, reason in way.problems(scenario.duration, scenario.validity.start_error):
                yield ("path", name, *key), reason
