"""From a YAML file to a scenario, with the line and column of every key; errors point into the file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pydantic
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dumbbell import units
from dumbbell.model.flows import TcpFlow, UdpFlow
from dumbbell.model.quantities import Strict
from dumbbell.model.scenario import Scenario

Key = str | int
KeyPath = tuple[Key, ...]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a scenario, and where."""

    file: str
    line: int
    column: int
    key: str
    reason: str

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return f"{self.file}:{self.line}:{self.column}: {key}{self.reason}"


class ScenarioError(Exception):
    """A scenario that cannot be run; ``problems`` lists everything found, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda p: (p.line, p.column))
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


@dataclass(frozen=True)
class ScenarioFile:
    """A scenario together with where each of its keys stands in the file."""

    path: Path
    scenario: Scenario
    positions: dict[KeyPath, tuple[int, int]]

    def problem(self, key: KeyPath, reason: str) -> Problem:
        """A problem at this key, or at the nearest enclosing key that the file has."""
        return _problem(self.path, self.positions, key, reason)


def load(path: Path) -> ScenarioFile:
    """Read a scenario file; raise :class:`ScenarioError` with everything that is wrong in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError([Problem(str(path), 1, 1, "", f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise ScenarioError([Problem(str(path), 1, 1, "", "is not UTF-8 text")]) from None

    tree = _Tree(path)
    value = tree.read(text)
    if value is None:
        raise ScenarioError(tree.problems or [Problem(str(path), 1, 1, "", "is empty")])
    try:
        scenario = Scenario.model_validate(value)
    except pydantic.ValidationError as error:
        # A value that fits no member of a union has one error for each member: said once is enough.
        reasons: dict[KeyPath, str] = {}
        for key, reason in (_explain(item, value) for item in error.errors()):
            reasons[key] = f"{reasons[key]}, or {reason}" if key in reasons else reason
        problems = [_problem(path, tree.positions, key, reason) for key, reason in reasons.items()]
        raise ScenarioError(tree.problems + problems) from None
    file = ScenarioFile(path, scenario, tree.positions)
    if contradictions := tree.problems + list(_contradictions(file)):
        raise ScenarioError(contradictions)
    return file


class _Tree:
    """Plain values of a YAML document, with the position of every key and item."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.positions: dict[KeyPath, tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self._yaml = YAML(typ="safe", pure=True)

    def read(self, text: str) -> Any:
        try:
            node = self._yaml.compose(text)
            return None if node is None else self._value(node, (), ())
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            reason = " ".join(filter(None, (error.context, error.problem)))
            self.problems.append(Problem(str(self.path), line, column, "", f"not YAML: {reason}"))
        except YAMLError as error:
            self.problems.append(
                Problem(str(self.path), 1, 1, "", f"not YAML: {' '.join(str(error).split())}")
            )

    def _value(self, node: Node, key: KeyPath, parents: tuple[Node, ...]) -> Any:
        self.positions.setdefault(key, _mark(node))
        if any(node is parent for parent in parents):
            self._refuse(node, key, "an alias inside what it stands for")
            return None
        inside = (*parents, node)
        if isinstance(node, SequenceNode):
            return [self._value(item, (*key, i), inside) for i, item in enumerate(node.value)]
        if isinstance(node, MappingNode):
            mapping: dict[str, Any] = {}
            for name_node, value_node in node.value:
                name = name_node.value
                if not isinstance(name_node, ScalarNode):
                    self._refuse(name_node, key, "a key is a plain word")
                elif name in mapping:
                    first = self.positions[*key, name][0]
                    self._refuse(name_node, (*key, name), f"duplicate key, first given in line {first}")
                else:
                    self.positions[*key, name] = _mark(name_node)
                    mapping[name] = self._value(value_node, (*key, name), inside)
            return mapping
        try:
            return self._yaml.constructor.construct_object(node)
        except ValueError as error:
            self._refuse(node, key, f"{node.value!r} cannot be read: {error}")
            return None

    def _refuse(self, node: Node, key: KeyPath, reason: str) -> None:
        line, column = _mark(node)
        self.problems.append(Problem(str(self.path), line, column, render_key(key), reason))


def _mark(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def render_key(key: Sequence[Key]) -> str:
    """``("flows", 1, "from")`` as ``flows[1].from``."""
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in key).removeprefix(".")


def _problem(path: Path, positions: dict[KeyPath, tuple[int, int]], key: KeyPath, reason: str) -> Problem:
    at = key
    while at and at not in positions:
        at = at[:-1]
    line, column = positions.get(at, (1, 1))
    return Problem(str(path), line, column, render_key(key), reason)


def _explain(error: Any, value: Any) -> tuple[KeyPath, str]:
    """Key path and reason of one of pydantic's errors.

    Pydantic names the chosen member of a union in its location; such names are not keys of the file.
    """
    key: list[Key] = []
    location = [part for part in error["loc"] if part != "[key]"]
    for part in location:
        if _has(value, part):
            key.append(part)
            value = value[part]
    if error["type"] == "missing":
        key.append(location[-1])
    given, context = error["input"], error.get("ctx", {})
    reason: str = error["msg"].removeprefix("Input ")
    match error["type"]:
        case "extra_forbidden":
            close = difflib.get_close_matches(str(key[-1]), _keys(), n=1, cutoff=0.7)
            reason = "unknown key" + (f", did you mean {close[0]}?" if close else "")
        case "missing":
            reason = "missing"
        case "union_tag_not_found":
            key, reason = [*key, "kind"], f"missing, give one of {_kinds()}"
        case "union_tag_invalid":
            key, reason = [*key, "kind"], f"{context['tag']!r} is not one of {_kinds()}"
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


def _kinds() -> str:
    return ", ".join(
        kind for flow in (TcpFlow, UdpFlow) for kind in get_args(flow.model_fields["kind"].annotation)
    )


def _keys() -> list[str]:
    fields = (field for model in _models(Strict) for field in model.model_fields.items())
    return sorted({field.alias or name for name, field in fields})


def _models(base: type[Strict]) -> Iterator[type[Strict]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def _contradictions(file: ScenarioFile) -> Iterator[Problem]:
    """What is wrong between keys, each at the key that a person would change."""
    scenario, names = file.scenario, dict[str, int]()
    for i, flow in enumerate(scenario.flows):
        if (first := names.setdefault(flow.name, i)) != i:
            yield file.problem(("flows", i, "name"), f"flows[{first}] has the name {flow.name} already")
        if flow.duration % 1_000_000_000:
            asked = units.render_duration(flow.duration)
            yield file.problem(
                ("flows", i, "duration"), f"iperf3 runs for a whole number of seconds, not {asked}"
            )
        if flow.src == flow.dst:
            yield file.problem(("flows", i, "to"), f"both ends are {flow.dst}")
        if flow.start + flow.duration > scenario.duration:
            end, most = (units.render_duration(t) for t in (flow.start + flow.duration, scenario.duration))
            yield file.problem(
                ("flows", i, "duration"), f"ends at {end}, after the scenario's duration of {most}"
            )
