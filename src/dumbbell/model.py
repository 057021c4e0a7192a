"""The scenario language: what a ``scenarios/*.yml`` file may say, and the errors when it says something else.

:func:`load` reads a file into a :class:`Scenario` and remembers the line and column of every key, so that the
planner's errors point into the file too. ``python -m dumbbell.model [FILE]`` writes the JSON Schema.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import pydantic
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dumbbell import units

Key = str | int
KeyPath = tuple[Key, ...]


# --- errors ---------------------------------------------------------------------------------------


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


# --- quantities -----------------------------------------------------------------------------------


def _text(pattern: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


def _whole_us(ns: int) -> int:
    if ns % 1000:
        raise ValueError("a path delay is a whole number of microseconds")
    return ns


Rate = Annotated[
    int, BeforeValidator(units.parse_rate), Field(gt=0), _text(units.pattern(units.RATE_BPS), "100mbit")
]
Duration = Annotated[int, BeforeValidator(units.parse_duration), _text(units.pattern(units.TIME_NS), "30s")]
Delay = Annotated[Duration, AfterValidator(_whole_us)]
Ratio = Annotated[float, BeforeValidator(units.parse_ratio), _text(rf"^{units.NUMBER}%$", "1%")]
QueueLimit = Annotated[
    units.Limit, BeforeValidator(units.parse_limit), _text(units.pattern(units.LIMIT_UNITS), "1bdp")
]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Endpoint = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_.-]+(\[[0-9]+\])?$", examples=["senders[0]", "sender1"])
]


# --- the language ---------------------------------------------------------------------------------


class Strict(BaseModel):
    """Nothing unknown, nothing converted silently, nothing changed afterwards."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Queue(Strict):
    """Queue of a bottleneck."""

    kind: Literal["pfifo", "bfifo"]
    limit: QueueLimit = Field(
        description="pfifo: packets or bdp; bfifo: bytes or bdp. 1bdp is rate x RTT, packets of 1514 bytes."
    )

    @model_validator(mode="after")
    def _limit_fits_kind(self) -> Self:
        own: str = {"pfifo": "packets", "bfifo": "bytes"}[self.kind]
        if self.limit.unit not in (own, "bdp"):
            raise ValueError(f"a {self.kind} is limited in {own} or bdp, not in {self.limit.unit}")
        return self


class Direction(Strict):
    """One direction of the path: bottleneck first, then delay and loss."""

    rate: Rate = Field(description="rate of the bottleneck, counted on Ethernet frames")
    delay: Delay = Field(description="one-way delay added by the router")
    loss: Ratio = Field(
        default=0.0, description="share of packets lost at random", json_schema_extra={"default": "0%"}
    )
    queue: Queue


class NetworkPath(Strict):
    """What the router is asked to be."""

    forward: Direction
    reverse: Direction


class HostState(Strict):
    """State that a host is brought to before traffic, and that is read back."""

    offloads: dict[Literal["tso", "gso", "gro", "lro", "sg", "rx", "tx"], bool] = Field(
        default={}, description="features of the experiment interfaces, by ethtool's short names"
    )
    txqueuelen: Annotated[int, Field(ge=0)] | None = None
    sysctls: dict[str, int | str] = {}


class _Flow(Strict):
    name: Name
    src: Endpoint = Field(alias="from", description="a host, or GROUP[INDEX]")
    dst: Endpoint = Field(alias="to", description="a host, or GROUP[INDEX]")
    start: Duration = Field(default=0, json_schema_extra={"default": "0s"})
    duration: Annotated[Duration, Field(gt=0)]
    streams: Annotated[int, Field(ge=1, le=128)] = 1


class TcpFlow(_Flow):
    """Bulk transfer over TCP by iperf3."""

    kind: Literal["iperf3_tcp"]
    congestion_control: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,15}$")] = "cubic"


class UdpFlow(_Flow):
    """Constant bit rate over UDP by iperf3."""

    kind: Literal["iperf3_udp"]
    rate: Rate = Field(description="payload rate of all streams together")


class Sampling(Strict):
    """How often the agents read tcp_info and the router's queues."""

    interval: Annotated[Duration, Field(ge=1_000_000)] = Field(
        default=100_000_000, json_schema_extra={"default": "100ms"}
    )


class Validity(Strict):
    """How far a run may be from what was asked before it counts as invalid."""

    rtt_tolerance: Ratio = Field(default=0.02, json_schema_extra={"default": "2%"})
    rate_tolerance: Ratio = Field(default=0.05, json_schema_extra={"default": "5%"})
    clock_offset: Duration = Field(default=1_000_000, json_schema_extra={"default": "1ms"})
    start_error: Duration = Field(default=50_000_000, json_schema_extra={"default": "50ms"})
    missed_samples: Ratio = Field(default=0.05, json_schema_extra={"default": "5%"})


Metric = Literal["utilisation", "jain_index"]


class Expectation(Strict):
    """A bound on a metric over the window in which all flows run; a valid run outside it has failed."""

    metric: Metric
    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("give min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min is above max")
        return self


class Scenario(Strict):
    """A runnable experiment."""

    name: Name
    title: str
    seed: Annotated[int, Field(ge=0)] = 1
    duration: Annotated[Duration, Field(gt=0)]
    path: NetworkPath | None = None
    hosts: dict[str, HostState] = Field(default={}, description="state by inventory group or host")
    flows: Annotated[list[Annotated[TcpFlow | UdpFlow, Field(discriminator="kind")]], Field(min_length=1)]
    sampling: Sampling = Sampling()
    validity: Validity = Validity()
    expect: list[Expectation] = []


def schema() -> bytes:
    """JSON Schema of a scenario file, as committed in ``schemas/``."""
    body = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Scenario.model_json_schema(
        by_alias=True
    )
    return (json.dumps(body, indent=2) + "\n").encode()


# --- loading --------------------------------------------------------------------------------------


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
    models = (
        Scenario,
        NetworkPath,
        Direction,
        Queue,
        HostState,
        TcpFlow,
        UdpFlow,
        Sampling,
        Validity,
        Expectation,
    )
    return sorted({field.alias or name for model in models for name, field in model.model_fields.items()})


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


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "schemas/scenario.schema.json")
    target.write_bytes(schema())
