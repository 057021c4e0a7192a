"""``plan.json``: the contract between planner, roles, agents and analysis (``docs/data-md``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from dumbbell.kinds.asked import KINDS
from dumbbell.kinds.asked.base import Kind, Protocol
from dumbbell.metrics.registry import MetricName
from dumbbell.plan.actions import PhaseHost
from dumbbell.plan.order import ordered_delay_us
from dumbbell.plan.part import Part, optional
from dumbbell.plan.path import OwnDelay, PlannedPath
from dumbbell.scenario.hosts import SUPER_PACKETS
from dumbbell.units import human

# Since 2 every owned setting of a host is judged, and those that its agent observes.
SCHEMA_VERSION: Literal[1, 2] = 2  # of new plans
SERVER_LEAD_NS = 5_000_000_000  # before the first flow; agents start servers earlier, when they are armed


class State(Part):
    """State that a host is brought to before traffic; null is as the host has it."""

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
    """A rate from a moment on, in time since the flow's start."""

    at_ns: int
    rate_bps: int


class Flow(Part):
    """A flow with addresses and ports known in advance; times are offsets from t0.

    Data goes from ``src`` to ``dst``. Of http and ndt7_download the server is the one that sends, of the
    others the client. Of http and ndt7 the kernel chooses the client's ports, which is port 0.
    """

    name: str
    kind: KindName
    direction: Literal["forward", "reverse"]  # of the path, which its data takes
    src_host: str
    dst_host: str
    src: str
    dst: str
    server_port: int
    client_port: int
    streams: int
    start_ns: int
    duration_ns: int
    connect_ns: int | None = optional()  # it makes no connection before; absent: when its client is launched
    congestion_control: str | None
    rate_bps: int | None  # payload, of all streams; of udp the first of its rates
    delay_us: int | None = optional()  # of its own, one way, in addition to the path's
    bytes: int | None = optional()  # of older plans; no scenario can ask for it
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
    sender: dict[str, str] | None = optional()  # what atou's ends are asked, as lines of their configurations
    receiver: dict[str, str] | None = optional()
    mode: Literal["precise", "bulk"] | None = optional()
    trace: bool | None = optional()
    own: dict[str, str] | None = optional()  # what a kind has beside all these

    @property
    def of_kind(self) -> Kind:
        """What holds for all flows of its kind."""
        return KINDS[self.kind]

    @property
    def server_host(self) -> str:
        """Host that waits to be asked."""
        return self.src_host if self.of_kind.server_sends else self.dst_host

    @property
    def client_host(self) -> str:
        """Host that begins."""
        return self.dst_host if self.of_kind.server_sends else self.src_host

    @property
    def server(self) -> str:
        """Address of the host that waits to be asked."""
        return self.src if self.of_kind.server_sends else self.dst

    @property
    def client(self) -> str:
        """Address of the host that begins."""
        return self.dst if self.of_kind.server_sends else self.src

    @property
    def ports(self) -> tuple[int, int]:
        """Ports at ``src`` and at ``dst``; 0 is any, another for each connection."""
        ends = (self.client_port, self.server_port)
        return ends[::-1] if self.of_kind.server_sends else ends

    @property
    def sampled_on(self) -> tuple[str, ...]:
        """Hosts that know the flow's windows and counters."""
        return tuple(getattr(self, end) for end in self.of_kind.ends_sampled)

    @property
    def asked_bytes(self) -> int | None:
        """All that it is asked to transfer, if that is a certain amount."""
        return self.bytes or (self.fetches or 0) * (self.fetch_bytes or 0) or None

    @property
    def life_ns(self) -> tuple[int, int]:
        """Offsets of its start and its planned end."""
        return self.start_ns, self.end_ns

    @property
    def end_ns(self) -> int:
        """Offset at which the flow stops sending, if it has not transferred all before."""
        return self.start_ns + self.duration_ns

    @property
    def mean_rate_bps(self) -> float | None:
        """Mean over its duration of a rate that its steps change; None where no rate is asked for."""
        if self.rate_bps is None:
            return None
        steps = [Step(at_ns=0, rate_bps=self.rate_bps), *(self.rate_steps or [])]
        ends_ns = [*(step.at_ns for step in steps[1:]), self.duration_ns]
        bits = sum(step.rate_bps * (end - step.at_ns) for step, end in zip(steps, ends_ns, strict=True))
        return bits / self.duration_ns

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        """Transport protocols that its data may have."""
        return self.of_kind.protocols

    @property
    def own_delays(self) -> list[OwnDelay]:
        """Its delay, and how a router knows its data, of any stream: no other flow has its server port."""
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
    """Tolerances between what was asked and what was measured."""

    rtt_tolerance: float
    rtt_wait_ns: int
    rate_tolerance: float
    arrival_tolerance: float
    clock_offset_ns: int
    start_error_ns: int
    unexpected_drops: float
    missed_samples: float
    cpu_saturated: float = 0.1  # of plans that are older than it
    ping_replies: float = 0.75  # likewise


class Expectation(Part):
    """A bound on a metric of these flows within this window; in the metric's own unit."""

    metric: MetricName
    flows: list[str]
    window_ns: tuple[int, int]
    until_done: bool | None = optional()  # it ends when a flow has transferred all that it is asked for
    percentile: float | None = optional()
    min: float | None
    max: float | None


def point_label(baseline: str | None, levels: Mapping[str, str]) -> str:
    """What tells a point from the others of its plan, in words; empty if it is the only one."""
    words = [baseline] if baseline else []
    return " ".join([*words, *(f"{name}={level}" for name, level in levels.items())])


class Point(Part):
    """One execution: what the path and every host are asked to be, and what every agent does."""

    id: str  # hash of the resolved configuration: the same in every repetition
    repetition: int
    levels: dict[str, str]  # by what varies
    baseline: str | None
    path: PlannedPath | None
    hosts: dict[str, Host]
    phases: list[Phase]
    validity: Validity
    expect: list[Expectation]
    warm_up_ns: int | None = optional()  # what is before is no part of any metric by default

    def phase(self, name: Literal["calibration", "measurement"]) -> Phase:
        """The phase of this name."""
        return next(phase for phase in self.phases if phase.phase == name)

    @property
    def duration_ns(self) -> int:
        """Length of all phases, without what lies between them."""
        return sum(phase.duration_ns for phase in self.phases)

    @property
    def label(self) -> str:
        """What tells it from the others, in words."""
        return point_label(self.baseline, self.levels)

    @property
    def warnings(self) -> list[str]:
        """What is allowed and likely not meant."""
        return [*self._no_data(), *self._put_together(), *self._held_back()]

    def _no_data(self) -> Iterator[str]:
        if not self.phase("measurement").flows:
            yield "no flow sends data: pings find an idle path"

    def _held_back(self) -> Iterator[str]:
        if self.path is None:
            return
        for name, way in self.path.ways:
            for at_ns, state in way.states:
                if (mean_us := ordered_delay_us(state, self.path.packet_bytes)) is not None:
                    since = f"path.{name} from {human(at_ns, 'ns')}" if at_ns else f"path.{name}"
                    yield (
                        f"{since}: keep_order holds packets back behind those with longer delays: at the "
                        f"full rate the mean delay is about {human(1000 * mean_us, 'ns')}, asked are "
                        f"{human(1000 * state.delay_us, 'ns')}, which only packets far apart have, such as "
                        "those of the calibration"
                    )

    def _put_together(self) -> Iterator[str]:
        on: dict[str, list[str]] = {}
        for host, asked in self.hosts.items():
            if names := ", ".join(name for name in SUPER_PACKETS if asked.state.offloads.get(name)):
                on.setdefault(names, []).append(host)
        states = [state for _, way in self.path.ways for _, state in way.states] if self.path else []
        hurt = dict.fromkeys(name for state in states for name in state.per_packet)
        if on and hurt:
            where = " and ".join(f"{names} of {', '.join(hosts)}" for names, hosts in on.items())
            yield (
                f"{where} are asked to be on: {', '.join(hurt)} of the path then count what they put "
                "together, up to 64 kB, as one packet"
            )


class Plan(Part):
    """The whole of ``plan.json``: points in the order in which they are run."""

    schema_version: Literal[1, 2]
    scenario: str
    title: str
    profile: str | None
    seed: int
    virtual: bool | None = optional()  # whether its hosts live in virtual time
    points: list[Point]

    @property
    def duration_ns(self) -> int:
        """Length of all phases of all points, without what lies between them."""
        return sum(point.duration_ns for point in self.points)

    @property
    def warnings(self) -> list[str]:
        """Those of its points, each once."""
        return list(dict.fromkeys(warning for point in self.points for warning in point.warnings))

    @property
    def observed(self) -> bool:
        """Whether all owned settings of hosts, and those that agents observe, belong to its runs."""
        return self.schema_version > 1

    def to_json(self) -> bytes:
        """Canonical bytes: keys in the order of the contract, hosts and sysctls sorted."""
        return (json.dumps(self.model_dump(), indent=2, ensure_ascii=False) + "\n").encode()
