"""A whole scenario: path, hosts, flows, matrix of points, and expectations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema

from dumbbell.kinds.asked import Flow
from dumbbell.quantities import Duration, Endpoint, Name, Strict
from dumbbell.scenario.acknowledge import Reason, WarningId
from dumbbell.scenario.expect import Expectation, Primary, Validity
from dumbbell.scenario.hosts import HostState
from dumbbell.scenario.path import NetworkPath

Scalar = str | int | float | bool


def _values(value: Any) -> Any:
    if value is None or (isinstance(value, list | dict) and not value):
        raise ValueError("there is no value")
    return value


Values = Annotated[
    Any,
    AfterValidator(_values),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": ["string", "number", "boolean"]},
                {"type": "array", "items": {"type": ["string", "number", "boolean"]}, "minItems": 1},
                {"type": "object", "minProperties": 1},
            ]
        }
    ),
]


class Matrix(Strict):
    """What varies, by name: a list of values, a mapping of names to values, or one value, a constant.

    There is a point for every combination, and `$name` stands for the value elsewhere. Something must refer
    to each name.
    """

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Values]

    exclude: list[dict[str, Scalar]] = Field(
        default=[], description="combinations to leave out: all that have these values"
    )
    include: list[dict[str, Scalar]] = Field(
        default=[], description="combinations to add, each with a value of everything that varies"
    )


class Sampling(Strict):
    """How often the agents read tcp_info and the router's queues, and what else they look at.

    What `trace` and `ebpf` need of a host and cost it is in collectors.md; a host that cannot is refused.
    """

    interval: Annotated[Duration, Field(ge=1_000_000)] = Field(
        default=100_000_000, description="between two samples", json_schema_extra={"default": "100ms"}
    )
    trace: bool = Field(
        default=False,
        description="each segment that arrives for a TCP flow, its retransmissions and changes of state, "
        "and the reasons of drops, by the kernel's tracepoints",
    )
    ebpf: bool = Field(
        default=False, description="what programs in the kernel count of TCP flows, beside tcp_info"
    )
    capture: bool = Field(
        default=False, description="headers of all packets at the router's interfaces, by tcpdump"
    )


class Scenario(Strict):
    """A runnable experiment."""

    name: Name = Field(description="as the file is called, without .yml")
    title: Annotated[str, Field(min_length=1)]
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=1, description="all randomness comes from it, when the scenario is planned"
    )
    matrix: Matrix = Matrix.model_validate({})
    repetitions: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="of each point; flows are drawn anew in each, alike for all points"
    )
    order: Literal["random", "listed"] = Field(
        default="random", description="of the points within each repetition"
    )
    roles: dict[Name, Endpoint] = Field(
        default={}, description="names of this scenario for hosts and groups of the inventory"
    )
    duration: Annotated[Duration, Field(gt=0)] = Field(description="of a point, from t0")
    warm_up: Duration = Field(
        default=0,
        description="of the duration, the part that expectations leave out",
        json_schema_extra={"default": "0s"},
    )
    cool_down: Duration = Field(
        default=0,
        description="silence after it, in which queues drain and samples go on",
        json_schema_extra={"default": "0s"},
    )
    path: NetworkPath | None = None
    hosts: dict[str, HostState] = Field(default={}, description="state by group, role or host")
    flows: Annotated[dict[Name, Flow], Field(min_length=1)]
    baselines: dict[Name, Annotated[list[Name], Field(min_length=1)]] = Field(
        default={}, description="points of their own, in which only these flows run"
    )
    sampling: Sampling = Sampling()
    validity: Validity = Validity()
    acknowledge: dict[WarningId, Reason] = Field(
        default={},
        description="warnings of the plan that are meant, by their ids, each with the reason (warnings.md)",
    )
    expect: list[Expectation] = Field(default=[])
    primary: Primary | None = Field(default=None, description="the metric that decides an A/B (comparing.md)")
    profiles: dict[Name, dict[str, Any]] = Field(
        default={}, description="other values, merged into the scenario when it is planned with this profile"
    )
