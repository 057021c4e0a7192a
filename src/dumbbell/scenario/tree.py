"""A YAML document as plain values, with the line and column of every key and item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dumbbell.scenario.problems import KeyPath, Problem, ScenarioError, render_key

MAX_NODES = 100_000  # aliases can make a short text very large

Positions = Mapping[KeyPath, tuple[int, int]]


@dataclass(frozen=True)
class Tree:
    """Values of a file and their positions."""

    path: Path
    value: Any
    positions: Positions
    problems: tuple[Problem, ...] = ()  # problems after which reading could go on

    def problem(self, key: KeyPath, reason: str) -> Problem:
        """A problem at this key, or at the nearest enclosing key in the file."""
        at = key
        while at and at not in self.positions:
            at = at[:-1]
        line, column = self.positions.get(at, (1, 1))
        return Problem(str(self.path), line, column, render_key(key), reason)

    def with_values(self, values: Mapping[str, Any]) -> Tree:
        """This tree with other values of keys of its top level."""
        return replace(self, value={**self.value, **values}) if isinstance(self.value, dict) else self

    def merged(self, overlay: KeyPath) -> Tree:
        """This tree with the mapping at a key merged over it, at any depth."""
        over: Any = self.value
        for part in overlay:
            over = over[part]
        positions = dict(self.positions)

        def merge(base: Any, over: Any, at: KeyPath) -> Any:
            if at in self.positions or overlay + at in self.positions:
                positions[at] = self.positions[overlay + at]
            if isinstance(base, dict) and isinstance(over, dict):
                return base | {k: merge(base.get(k), v, (*at, k)) for k, v in over.items()}
            size = len(overlay) + len(at)
            below = {k: p for k, p in self.positions.items() if k[:size] == overlay + at}
            positions.update({k[len(overlay) :]: p for k, p in below.items()})
            return over

        root = positions[()]
        value = merge(self.value, over, ())
        return replace(self, value=value, positions=positions | {(): root})


def read(path: Path) -> Tree:
    """Read a file; :class:`ScenarioError` if it is not YAML with plain values."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError([Problem(str(path), 1, 1, "", f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise ScenarioError([Problem(str(path), 1, 1, "", "is not UTF-8 text")]) from None
    reader = _Reader(path)
    try:
        value = reader.read(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise ScenarioError([Problem(str(path), line, column, "", f"not YAML: {reason}")]) from None
    except YAMLError as error:
        reason = " ".join(str(error).split())
        raise ScenarioError([Problem(str(path), 1, 1, "", f"not YAML: {reason}")]) from None
    except RecursionError:
        raise ScenarioError([Problem(str(path), 1, 1, "", "is nested too deeply")]) from None
    if value is None:
        raise ScenarioError(reader.problems or [Problem(str(path), 1, 1, "", "is empty")])
    return Tree(path, value, reader.positions, tuple(reader.problems))


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.positions: dict[KeyPath, tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self._nodes = 0
        self._yaml = YAML(typ="safe", pure=True)

    def read(self, text: str) -> Any:
        node = self._yaml.compose(text)
        return None if node is None else self._value(node, (), ())

    def _value(self, node: Node, key: KeyPath, parents: tuple[Node, ...]) -> Any:
        self.positions.setdefault(key, _mark(node))
        self._nodes += 1
        if self._nodes == MAX_NODES:
            self._refuse(node, key, f"more than {MAX_NODES} values, with those that aliases stand for")
        if self._nodes >= MAX_NODES:
            return None
        if any(node is parent for parent in parents):
            self._refuse(node, key, "an alias inside what it stands for")
            return None
        inside = (*parents, node)
        if isinstance(node, SequenceNode):
            return [self._value(item, (*key, i), inside) for i, item in enumerate(node.value)]
        if isinstance(node, MappingNode):
            mapping: dict[str, Any] = {}
            for name_node, value_node in node.value:
                name = self._name(name_node, key)
                if name is None:
                    continue
                if name in mapping:
                    first = self.positions[*key, name][0]
                    self._refuse(name_node, (*key, name), f"duplicate key, first given in line {first}")
                else:
                    self.positions[*key, name] = _mark(name_node)
                    mapping[name] = self._value(value_node, (*key, name), inside)
            return mapping
        try:
            value = self._yaml.constructor.construct_object(node)
            return _characters(value) if isinstance(value, str) else value
        except ValueError as error:
            self._refuse(node, key, f"{node.value!r} cannot be read: {error}")
            return None

    def _name(self, node: Node, key: KeyPath) -> str | None:
        if not isinstance(node, ScalarNode):
            self._refuse(node, key, "a key is a plain word")
            return None
        try:
            return _characters(node.value)
        except ValueError as error:
            self._refuse(node, key, f"the key {node.value!r} cannot be read: {error}")
            return None

    def _refuse(self, node: Node, key: KeyPath, reason: str) -> None:
        line, column = _mark(node)
        self.problems.append(Problem(str(self.path), line, column, render_key(key), reason))


def _mark(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _characters(text: str) -> str:
    """Text in which pairs of surrogates, JSON's escapes, are replaced by the characters that they encode."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("one surrogate of two is no character") from None
