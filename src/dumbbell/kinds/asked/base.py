"""The base of all kinds of flows: common keys of a scenario, and the methods that the planner calls."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Field

from dumbbell.quantities import Delay, Duration, Endpoint, NoBoolean, Rate, Size, Strict

# RFC 2474 (class selectors), RFC 2597 (assured forwarding), RFC 3246, RFC 5865, RFC 8622
DSCP = {
    **{f"cs{i}": 8 * i for i in range(8)},
    **{f"af{c}{p}": 8 * c + 2 * p for c in range(1, 5) for p in range(1, 4)},
    **{"ef": 46, "va": 44, "le": 1},
}


def _dscp(value: Any) -> Any:
    if isinstance(value, str):
        if value not in DSCP:
            raise ValueError(f"{value!r} is no DSCP: write 0 to 63 or one of {', '.join(DSCP)}")
        return DSCP[value]
    return value


CongestionControl = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,15}$"), NoBoolean]
PositiveDuration = Annotated[Duration, Field(gt=0)]
Buffer = Annotated[Size, Field(le=2**31 - 1)]
Dscp = Annotated[
    int,
    BeforeValidator(_dscp, json_schema_input_type=int | Literal[tuple(DSCP)]),
    Field(ge=0, le=63),
]
Transport = Literal["tcp", "udp"]


class Repeat(Strict):
    """Several flows in place of one: they are called by its name and a number from 1."""

    count: Annotated[int, Field(ge=1, le=1000)]
    every: Duration = Field(
        default=0, description="time between their starts", json_schema_extra={"default": "0s"}
    )
    pairs: Literal["same", "different"] = Field(
        default="same",
        description="different: the index of `from` and `to` counts up, so that each has hosts of its own",
    )


class PlannedFlow(Protocol):
    """The part of a plan's flow from which a kind makes the arguments of its programs."""

    kind: str
    name: str
    src: str
    dst: str
    server_port: int
    client_port: int
    duration_ns: int
    own: dict[str, str] | None

    @property
    def server(self) -> str:
        """Address of the host that waits for the client."""


@dataclass(frozen=True)
class Given:
    """What a kind makes its part of the plan from, beside its keys.

    Times are in ns since t0. ``bottleneck_bps`` is the rate in the direction of the data at the flow's start:
    None without a path, 0 in an outage. ``rng`` draws the same in all points of a repetition.
    """

    start_ns: int
    duration_ns: int
    bottleneck_bps: int | None
    rng: random.Random


class BaseFlow(Strict):
    """What every flow has; its kind says what else. A flow is known by its key in `flows`."""

    src: Endpoint = Field(alias="from")
    dst: Endpoint = Field(alias="to")
    direction: Literal["forward", "reverse"] = Field(
        default="forward", description="reverse: data goes from `to` to `from`"
    )
    start: Duration = Field(default=0, description="since t0", json_schema_extra={"default": "0s"})
    duration: PositiveDuration | None = Field(default=None, description="default: to the scenario's end")
    delay: Delay = Field(
        default=0,
        description="of its own, one way: the router delays its data by so much more than the path does, and "
        "its RTT is as much longer. A ping has none",
        json_schema_extra={"default": "0s"},
    )
    repeat: Repeat | None = Field(default=None, description="several such flows")

    if TYPE_CHECKING:
        kind: str

    @property
    def lasts_ns(self) -> int | None:
        """The duration that the kind fixes, in ns; None: the flow runs to the scenario's end."""
        return self.duration

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """Start and end since t0 in ns, if keys of the kind set them instead of start and duration."""
        return None

    @property
    def round_trips(self) -> int | None:
        """Round trips before the first data, for a flow that connects ahead of its start; else None."""
        return None

    @property
    def greeting_ns(self) -> int | None:
        """How long before the flow's start its first packet leaves, in ns; None if that time is not fixed."""
        return None

    @property
    def sampled(self) -> bool:
        """Whether the flow's connections are sampled."""
        return False

    @property
    def why_no_delay(self) -> str:
        """Why a router cannot match the flow's packets to delay them; '' if it can."""
        return ""

    def wrong_duration(self, duration_ns: int) -> str:
        """Why the flow cannot have this duration; '' if it can."""
        return ""

    def planned(self, given: Given) -> dict[str, Any]:
        """The kind's own keys of the flow in the plan.

        :class:`Refused` is raised if the flow cannot be planned.
        """
        return {}

    def programs(self, flow: PlannedFlow) -> Programs | None:
        """The command lines of both ends, for kinds that run programs; None for kinds with actions."""
        return None


class SocketFlow(BaseFlow):
    """Parallel connections with options of their sockets, which iperf3 takes too."""

    streams: Annotated[int, Field(ge=1, le=128)] = Field(default=1, description="parallel connections")
    dscp: Dscp | None = Field(default=None, description="0 to 63, or a name such as ef, af41, cs1, le")
    socket_buffer: Buffer | None = Field(
        default=None, description="SO_SNDBUF and SO_RCVBUF at both ends; default: the kernel tunes them"
    )

    def planned(self, given: Given) -> dict[str, Any]:
        """The options of the sockets."""
        return {"streams": self.streams, "dscp": self.dscp, "socket_buffer_bytes": self.socket_buffer}


class TcpSocketFlow(SocketFlow):
    """Data over TCP, of which every connection is sampled."""

    congestion_control: CongestionControl = "cubic"
    rate: Rate | None = Field(
        default=None,
        description="payload that the application writes, all streams together; default: as fast as possible",
    )
    pacing: Rate | None = Field(
        default=None,
        description="SO_MAX_PACING_RATE of each stream: the kernel spaces its packets. It counts their "
        "payload; the `rate` of a path counts whole frames",
    )
    mss: Annotated[int, Field(ge=88, le=9216)] | None = Field(
        default=None, description="TCP_MAXSEG, in bytes; options of a segment are part of it"
    )

    @property
    def sampled(self) -> bool:
        """Each stream is sampled."""
        return True

    def planned(self, given: Given) -> dict[str, Any]:
        """The options of the sockets, and how the application writes."""
        return super().planned(given) | {
            "congestion_control": self.congestion_control,
            "rate_bps": self.rate,
            "pacing_bps": self.pacing,
            "mss_bytes": self.mss,
        }


class Refused(ValueError):
    """The flow cannot be planned: ``key`` is the key of the scenario, the message is the reason."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


@dataclass(frozen=True)
class Programs:
    """Command lines of a flow: the client starts the exchange, the server waits for it (None: no server)."""

    client: Sequence[str]
    server: Sequence[str] | None


@dataclass(frozen=True)
class Kind:
    """Properties of all flows of a kind. Flows that run :class:`Programs` have no actions."""

    name: str
    asked: type[BaseFlow] | None  # None: no scenario can ask for it
    protocols: tuple[Transport, ...]  # protocols that carry the data
    counted_by: Transport | None  # who counts losses: "tcp" the sender, "udp" the receiver, None nobody
    server: str = ""  # the action of the end that waits for requests
    client: str = ""  # the action of the end that starts the exchange
    server_sends: bool = False  # False: the client sends the data
    any_client_port: bool = False  # the kernel chooses the client's ports
    ends_sampled: tuple[Literal["src_host", "dst_host"], ...] = ("src_host", "dst_host")
    writes_rows: bool = False  # the agent implements both ends, and they write rows
    follows_sockets: bool = True  # the agent follows sampled sockets until they are destroyed

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of server and client; empty for a kind without actions."""
        return (self.server, self.client) if self.server else ()


Kinds = Mapping[str, Kind]
