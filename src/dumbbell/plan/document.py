"""``plan.json``: the contract between planner, roles, agents and analysis (``docs/data-model.md``)."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Field

from dumbbell import model
from dumbbell.plan.part import Part
from dumbbell.plan.path import PlannedPath


class State(Part):
    """State that a host is brought to before traffic."""

    offloads: dict[str, bool]
    txqueuelen: int | None
    sysctls: dict[str, str]
    congestion_controls: list[str]


class Host(Part):
    """A host of the testbed."""

    groups: list[str]
    state: State


class Flow(Part):
    """A flow with addresses and ports known in advance; times are offsets from t0."""

    name: str
    kind: Literal["iperf3_tcp", "iperf3_udp"]
    src_host: str
    dst_host: str
    src: str
    dst: str
    server_port: int
    client_port: int
    streams: int
    start_ns: int
    duration_ns: int
    congestion_control: str | None
    rate_bps: int | None

    @property
    def end_ns(self) -> int:
        """Offset at which the flow stops sending."""
        return self.start_ns + self.duration_ns


class FlowAction(Part):
    """Start one end of a flow of the phase."""

    at_ns: int
    kind: Literal["iperf3_server", "iperf3_client"]
    flow: str


class PingAction(Part):
    """Measure the idle round-trip time."""

    at_ns: int
    kind: Literal["ping"]
    name: str
    dst: str
    count: int
    interval_ns: int


Action = Annotated[FlowAction | PingAction, Field(discriminator="kind")]


class Sample(Part):
    """What an agent samples: sockets of these flows, and its queues."""

    tcp: list[str] = Field(default=[])
    qdisc: bool = False


class PhaseHost(Part):
    """What a host does in a phase, in order of time."""

    actions: list[Action] = Field(default=[])
    sample: Sample = Sample()


class Phase(Part):
    """A part of the run that is armed and started on its own."""

    phase: Literal["calibration", "measurement"]
    duration_ns: int
    sampling_interval_ns: int
    flows: list[Flow]
    hosts: dict[str, PhaseHost]


class Validity(Part):
    """Tolerances between what was asked and what was measured."""

    rtt_tolerance: float
    rate_tolerance: float
    clock_offset_ns: int
    start_error_ns: int
    missed_samples: float


class Expectation(Part):
    """A bound on a metric."""

    metric: model.Metric
    min: float | None
    max: float | None


class Plan(Part):
    """The whole of ``plan.json``."""

    schema_version: Literal[1] = 1
    scenario: str
    title: str
    point: str
    seed: int
    path: PlannedPath | None
    hosts: dict[str, Host]
    phases: list[Phase]
    validity: Validity
    expect: list[Expectation]

    def phase(self, name: Literal["calibration", "measurement"]) -> Phase:
        """The phase of this name."""
        return next(phase for phase in self.phases if phase.phase == name)

    def to_json(self) -> bytes:
        """Canonical bytes: keys in the order of the contract, hosts and sysctls sorted."""
        return (json.dumps(self.model_dump(), indent=2, ensure_ascii=False) + "\n").encode()
