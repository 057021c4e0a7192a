"""Actions of a host's agent in a phase, and what the agent samples."""

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
    """Start one end of a flow."""

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
        """The times of its first request, and of the request that would follow its last one."""
        return self.at_ns, self.at_ns + self.count * self.interval_ns


class TcpPingAction(Part):
    """Measure the round-trip time to a port: the kernel's timing of TCP handshakes."""

    at_ns: int
    kind: Literal["tcp_ping"]
    name: str
    dst: str
    dst_port: int
    count: int
    interval_ns: int


class TcpListenAction(Part):
    """Answer tcp_ping on a port until the phase ends."""

    at_ns: int
    kind: Literal["tcp_listen"]
    name: str
    dst: str
    dst_port: int
    src: str | None = optional()  # who may connect; in plans without it anyone may


class PathAction(Part):
    """Change the path. The router's own part of the plan also has the commands for it."""

    at_ns: int
    kind: Literal["path"]
    name: str


class CaptureAction(Part):
    """Capture the headers of all packets at an interface with tcpdump until the phase ends."""

    at_ns: int
    kind: Literal["capture"]
    name: str  # the interface's name


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
    """What an agent samples: sockets of the flows named here, queues, and once a second the whole host.

    ``qdisc`` samples all queues at each tick, on hosts whose queues are part of the experiment; ``queues``
    once a second. ``trace`` records the flows by the kernel's tracepoints, and drops of the whole host;
    ``ebpf`` counts the flows in the kernel. Not every host has the last two.
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
        """Whether the agent samples anything."""
        return self != Sample()


class PhaseHost(Part):
    """What a host does in a phase, in order of time."""

    actions: list[Action] = Field(default=[])
    sample: Sample = Sample()
    restore_ns: int | None = optional()  # when a router undoes its path's changes

    @property
    def writes_rows(self) -> bool:
        """Whether the agent writes samples, or rows of a flow that it implements."""
        makes = {name for kind in KINDS.values() if kind.writes_rows for name in kind.actions}
        own = any(action.kind in makes for action in self.actions)
        return own or self.sample.anything

    @property
    def waits(self) -> bool:
        """Whether the host listens on a port in this phase."""
        servers = {kind.server for kind in KINDS.values()} | {"command_server", "tcp_listen"}
        return any(action.kind in servers for action in self.actions)
