"""A whole scenario: path, hosts, flows, and what is expected of the run."""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dumbbell.model.flows import TcpFlow, UdpFlow
from dumbbell.model.path import NetworkPath
from dumbbell.model.quantities import Duration, Name, Ratio, Strict


class HostState(Strict):
    """State that a host is brought to before traffic, and that is read back."""

    offloads: dict[Literal["tso", "gso", "gro", "lro", "sg", "rx", "tx"], bool] = Field(
        default={}, description="features of the experiment interfaces, by ethtool's short names"
    )
    txqueuelen: Annotated[int, Field(ge=0)] | None = None
    sysctls: dict[str, int | str] = Field(default={})


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
    expect: list[Expectation] = Field(default=[])


def schema() -> bytes:
    """JSON Schema of a scenario file, as committed in ``schemas/``."""
    body = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Scenario.model_json_schema(
        by_alias=True
    )
    return (json.dumps(body, indent=2) + "\n").encode()
