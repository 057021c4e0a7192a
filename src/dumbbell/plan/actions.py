"""What a host does in a phase: the actions of its agent, and what the agent samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from dumbbell.kinds.asked import KINDS
from dumbbell.plan.part import Part, optional

if TYPE_CHECKING:
    FlowActionKind = str
else:
    FlowActionKind = Literal[tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.actions))]


class FlowAction(Part):
    """Start one end of a flow of the phase."""

    at_ns: int
    kind: FlowActionKind
    flow: str


class PingAction(Part):
    """Measure the round-trip time."""

    at_ns: int
    kind: Literal["ping"]
    name: str
    dst: str
    count: int
    interval_ns: int

    @property
    def life_ns(self) -> tuple[int, int]:
        """Offsets of its first request and of when one more would be due."""
        return self.at_ns, self.at_ns + self.count * self.interval_ns


class TcpPingAction(Part):
    """Measure the round-trip time to a port, by the kernel's own clock over handshakes."""

    at_ns: int
    kind: Literal["tcp_ping"]
    name: str
    dst: str
    dst_port: int
    count: int
    interval_ns: int


class TcpListenAction(Part):
    """Answer a tcp_ping to a port, until the phase ends."""

    at_ns: int
    kind: Literal["tcp_listen"]
    name: str
    dst: str
    dst_port: int
    src: str | None = optional()  # who may ask; of plans that do not say it, anybody


class PathAction(Part):
    """Change the path. The router's own part of the plan also has the commands that do it."""

    at_ns: int
    kind: Literal["path"]
    name: str


class CaptureAction(Part):
    """Capture the headers of all packets at an interface until the phase ends, by tcpdump."""

    at_ns: int
    kind: Literal["capture"]
    name: str  # of the interface


class CommandAction(Part):
    """Start a program of one end of a flow."""

    at_ns: int
    kind: Literal["command_server", "command_client"]
    flow: str
    argv: list[str]


Action = Annotated[
    FlowAction | PingAction | TcpPingAction | TcpListenAction | PathAction | CaptureAction | CommandAction,
    Field(discriminator="kind"),
]


class Sample(Part):
    """What an agent samples: sockets of these flows, its queues, and each second the whole host.

    ``qdisc`` is all queues at each tick, of hosts whose queues are the experiment; ``queues`` each second.
    ``trace`` follows the same flows by the kernel's tracepoints, and drops of the whole host; ``ebpf`` counts
    these flows by programs in the kernel. Not every host has them.
    """

    tcp: list[str] = Field(default=[])
    qdisc: bool = False
    link: bool = False
    snmp: bool = False
    cpu: bool = False
    clock: bool = False
    trace: bool = False
    ebpf: bool = False
    queues: bool | None = optional()

    @property
    def anything(self) -> bool:
        """Whether the agent takes samples at all."""
        return self != Sample()


class PhaseHost(Part):
    """What a host does in a phase, in order of time."""

    actions: list[Action] = Field(default=[])
    sample: Sample = Sample()
    restore_ns: int | None = optional()  # when a router undoes its changes of the path

    @property
    def writes_rows(self) -> bool:
        """Whether the agent leaves samples, its own or those of a flow of its own."""
        makes = {name for kind in KINDS.values() if kind.writes_rows for name in kind.actions}
        own = any(action.kind in makes for action in self.actions)
        return own or self.sample.anything

    @property
    def waits(self) -> bool:
        """Whether a port of the host waits for others in this phase."""
        servers = {kind.server for kind in KINDS.values()} | {"command_server", "tcp_listen"}
        return any(action.kind in servers for action in self.actions)
