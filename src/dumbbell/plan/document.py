"""``plan.json``: the contract between planner, roles, agents and analysis (``docs/data-model.md``)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dumbbell.kinds.asked import KINDS
from dumbbell.kinds.asked.base import Kind, Transport
from dumbbell.metrics.registry import MetricName
from dumbbell.plan import warnings
from dumbbell.plan.actions import PhaseHost
from dumbbell.plan.part import Part, optional
from dumbbell.plan.path import OwnDelay, PlannedPath
from dumbbell.plan.warnings import Warned
from dumbbell.versions import refuse_newer

# Since version 2, all owned settings of a host and those that its agent observes are judged.
SCHEMA_VERSION: Literal[1, 2] = 2  # written in new plans
SERVER_LEAD_NS = 5_000_000_000  # before the first flow; agents start servers earlier, when they are armed


class State(Part):
    """State of a host before traffic; null leaves a setting as the host has it."""

    kernel: str | None
    modules: dict[str, dict[str, str]]
    offloads: dict[str, bool]
    txqueuelen: int | None
    mtu: int | None
    qdisc: str | None
    sysctls: dict[str, str]
    congestion_controls: list[str]
    routes: dict[str, bool] | None = optional()


class Host(Part):
    """A host of the testbed."""

    groups: list[str]
    state: State


if TYPE_CHECKING:
    KindName = str
else:
    KindName = Literal[tuple(name for name in KINDS if name != "ping")]


class Step(Part):
    """A rate that applies from a time on, in ns since the flow's start."""

    at_ns: int
    rate_bps: int


class Transfer(Part):
    """A transfer of drawn size: when it begins, in ns since the flow's start."""

    at_ns: int
    bytes: int


class Flow(Part):
    """A flow with its addresses and ports; times are offsets from t0.

    Data goes from ``src`` to ``dst``. In flows of http and ndt7_download the server sends, in others the
    client. In flows of http and ndt7 the kernel chooses the client's ports, written as port 0.
    """

    name: str
    kind: KindName
    direction: Literal["forward", "reverse"]  # the direction of the path that its data takes
    src_host: str
    dst_host: str
    src: str
    dst: str
    server_port: int
    client_port: int
    streams: int
    start_ns: int
    duration_ns: int
    connect_ns: int | None = optional()  # earliest time to connect; absent: when its client starts
    congestion_control: str | None
    rate_bps: int | None  # payload of all streams; for udp the first of its rates
    delay_us: int | None = optional()  # its own one-way delay, in addition to the path's
    bytes: int | None = optional()  # amount to transfer; default: as much as there is time for
    pacing_bps: int | None = optional()
    mss_bytes: int | None = optional()
    socket_buffer_bytes: int | None = optional()
    dscp: int | None = optional()
    payload_bytes: int | None = optional()
    rate_steps: list[Step] | None = optional()
    fetch_bytes: int | None = optional()
    fetches: int | None = optional()
    think_ns: int | None = optional()
    persistent: bool | None = optional()
    transfers: list[Transfer] | None = optional()  # in place of these four
    sender: dict[str, str] | None = optional()  # configuration of atou's ends, as lines of their files
    receiver: dict[str, str] | None = optional()
    mode: Literal["precise", "bulk"] | None = optional()
    trace: bool | None = optional()
    own: dict[str, str] | None = optional()  # other keys of the kind

    @property
    def of_kind(self) -> Kind:
        """The properties of flows of its kind."""
        return KINDS[self.kind]

    @property
    def server_host(self) -> str:
        """The host that waits for connections or requests."""
        return self.src_host if self.of_kind.server_sends else self.dst_host

    @property
    def client_host(self) -> str:
        """The host that starts the exchange."""
        return self.dst_host if self.of_kind.server_sends else self.src_host

    @property
    def server(self) -> str:
        """The address of the server."""
        return self.src if self.of_kind.server_sends else self.dst

    @property
    def client(self) -> str:
        """The address of the client."""
        return self.dst if self.of_kind.server_sends else self.src

    @property
    def ports(self) -> tuple[int, int]:
        """The ports at ``src`` and at ``dst``; 0 means any, different for each connection."""
        ends = (self.client_port, self.server_port)
        return ends[::-1] if self.of_kind.server_sends else ends

    @property
    def sampled_on(self) -> tuple[str, ...]:
        """The hosts that have the flow's windows and counters."""
        return tuple(getattr(self, end) for end in self.of_kind.ends_sampled)

    @property
    def asked_bytes(self) -> int | None:
        """The amount of data that it is to transfer, if that is fixed."""
        return self.bytes or (self.fetches or 0) * (self.fetch_bytes or 0) or None

    @property
    def life_ns(self) -> tuple[int, int]:
        """The times of its start and its planned end."""
        return self.start_ns, self.end_ns

    @property
    def end_ns(self) -> int:
        """When the flow stops sending, unless it has transferred everything before."""
        return self.start_ns + self.duration_ns

    @property
    def send_buffer_bytes(self) -> int | None:
        """SO_SNDBUF that is asked of the sender's sockets."""
        return self._buffer("send_buffer_bytes")

    @property
    def receive_buffer_bytes(self) -> int | None:
        """SO_RCVBUF that is asked of the receiver's sockets."""
        return self._buffer("receive_buffer_bytes")

    def _buffer(self, name: str) -> int | None:
        apart = (self.own or {}).get(name)
        return self.socket_buffer_bytes if apart is None else int(apart)

    @property
    def mean_rate_bps(self) -> float | None:
        """The mean rate over its duration, if its steps change it; None if no rate is requested."""
        if self.rate_bps is None:
            return None
        steps = [Step(at_ns=0, rate_bps=self.rate_bps), *(self.rate_steps or [])]
        ends_ns = [*(step.at_ns for step in steps[1:]), self.duration_ns]
        bits = sum(step.rate_bps * (end - step.at_ns) for step, end in zip(steps, ends_ns, strict=True))
        return bits / self.duration_ns

    @property
    def protocols(self) -> tuple[Transport, ...]:
        """The transport protocols of its data."""
        return self.of_kind.protocols

    @property
    def own_delays(self) -> list[OwnDelay]:
        """Its own delay with the ports by which a router recognises its data.

        No other flow has its server port.
        """
        if self.delay_us is None:
            return []
        at_src = self.server == self.src
        return [
            OwnDelay(
                delay_us=self.delay_us,
                protocol=protocol,
                src=self.src,
                dst=self.dst,
                src_port=self.server_port if at_src else None,
                dst_port=None if at_src else self.server_port,
            )
            for protocol in self.protocols
        ]


class Phase(Part):
    """A part of the run that is armed and started on its own."""

    phase: Literal["calibration", "measurement"]
    duration_ns: int
    sampling_interval_ns: int
    flows: list[Flow]
    hosts: dict[str, PhaseHost]


class Validity(Part):
    """Tolerances between requested and measured values."""

    rtt_tolerance: float
    rtt_wait_ns: int
    rate_tolerance: float
    arrival_tolerance: float
    clock_offset_ns: int
    start_error_ns: int
    unexpected_drops: float
    missed_samples: float
    cpu_saturated: float = 0.1  # in plans from before it existed
    ping_replies: float = 0.75  # in plans from before it existed


class Expectation(Part):
    """A bound on a metric of these flows in this window, in the metric's unit."""

    metric: MetricName
    flows: list[str]
    window_ns: tuple[int, int]
    until_done: bool | None = optional()  # the window ends when a flow has transferred all of its data
    percentile: float | None = optional()
    min: float | None
    max: float | None


def point_label(baseline: str | None, levels: Mapping[str, str]) -> str:
    """What distinguishes a point from the others of its plan, in words; '' if it is the only one."""
    words = [baseline] if baseline else []
    return " ".join([*words, *(f"{name}={level}" for name, level in levels.items())])


class Point(Part):
    """One execution: the requested state of the path and of every host, and the actions of every agent."""

    id: str  # hash of the resolved configuration: the same in every repetition
    repetition: int
    levels: dict[str, str]  # by the name of the quantity that varies
    baseline: str | None
    path: PlannedPath | None
    hosts: dict[str, Host]
    phases: list[Phase]
    validity: Validity
    expect: list[Expectation]
    warm_up_ns: int | None = optional()  # metrics leave this time out by default

    def phase(self, name: Literal["calibration", "measurement"]) -> Phase:
        """The phase of this name."""
        return next(phase for phase in self.phases if phase.phase == name)

    @property
    def duration_ns(self) -> int:
        """The length of all phases, without the time between them."""
        return sum(phase.duration_ns for phase in self.phases)

    @property
    def label(self) -> str:
        """What distinguishes it from the other points, in words."""
        return point_label(self.baseline, self.levels)

    @property
    def warnings(self) -> list[Warned]:
        """What is allowed but likely not meant."""
        return warnings.of_point(self)


class Plan(Part):
    """The whole of ``plan.json``: points in the order in which they are run."""

    schema_version: Literal[1, 2]
    scenario: str
    title: str
    profile: str | None
    seed: int
    virtual: bool | None = optional()  # whether the hosts run in virtual time
    acknowledged: dict[str, str] | None = optional()  # the reason why a warning is meant, by its id
    points: list[Point]

    @classmethod
    def read(cls, path: Path) -> Plan:
        """The plan in a file. OSError, NewerError, or ValueError if it is no plan."""
        refuse_newer_plan(path)
        return cls.model_validate_json(path.read_bytes())

    @property
    def duration_ns(self) -> int:
        """The length of all phases of all points, without the time between them."""
        return sum(point.duration_ns for point in self.points)

    @property
    def warnings(self) -> list[Warned]:
        """What is allowed but likely not meant, each once, whether or not it is acknowledged."""
        return warnings.of_plan(self)

    @property
    def unacknowledged(self) -> list[Warned]:
        """The warnings that the scenario does not acknowledge."""
        return [warned for warned in self.warnings if warned.id not in (self.acknowledged or {})]

    @property
    def told_warnings(self) -> list[str]:
        """Each warning as it is shown, with the reason if it is acknowledged."""
        reasons = self.acknowledged or {}
        return [f"{w} (acknowledged: {reasons[w.id]})" if w.id in reasons else str(w) for w in self.warnings]

    @property
    def observed(self) -> bool:
        """Whether its runs judge owned settings of hosts and those that agents observe."""
        return self.schema_version > 1

    @property
    def digest(self) -> str:
        """Identifies all that the plan asks for."""
        return hashlib.sha256(self.to_json()).hexdigest()[:16]

    def to_json(self) -> bytes:
        """Canonical bytes: keys in the order of the contract, hosts and sysctls sorted."""
        return (json.dumps(self.model_dump(), indent=2, ensure_ascii=False) + "\n").encode()


def refuse_newer_plan(path: Path) -> None:
    """NewerError if a newer Dumbbell has written this ``plan.json``; a missing one is accepted."""
    refuse_newer(path, SCHEMA_VERSION)
