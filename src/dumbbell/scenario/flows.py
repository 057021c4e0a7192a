"""What a scenario says of its flows."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from dumbbell import units
from dumbbell.quantities import Delay, Duration, Endpoint, NoBoolean, Period, Rate, Size, Strict
from dumbbell.scenario.atou import MAX_DURATION_NS, AtouReceiver, AtouSender

# RFC 2474 (class selectors), RFC 2597 (assured forwarding), RFC 3246, RFC 5865, RFC 8622
DSCP = {
    **{f"cs{i}": 8 * i for i in range(8)},
    **{f"af{c}{p}": 8 * c + 2 * p for c in range(1, 5) for p in range(1, 4)},
    **{"ef": 46, "va": 44, "le": 1},
}
NDT_NS = 10 * 10**9  # how long a test of NDT, version 7, sends
FULL_DATAGRAM_BYTES = 1472  # with headers of IPv4 and UDP a packet of 1500 bytes


def _dscp(value: Any) -> Any:
    if isinstance(value, str):
        if value not in DSCP:
            raise ValueError(f"{value!r} is no DSCP: write 0 to 63 or one of {', '.join(DSCP)}")
        return DSCP[value]
    return value


CongestionControl = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,15}$"), NoBoolean]
PositiveDuration = Annotated[Duration, Field(gt=0)]
Dscp = Annotated[
    int,
    BeforeValidator(_dscp, json_schema_input_type=int | Literal[tuple(DSCP)]),
    Field(ge=0, le=63),
]


class Random(Strict):
    """Durations drawn from a distribution when the scenario is planned; give one of the three."""

    exponential: PositiveDuration | None = Field(default=None, description="mean")
    pareto: PositiveDuration | None = Field(default=None, description="mean")
    uniform: Period | None = Field(default=None, description="shortest and longest, as in 1s-3s")
    shape: Annotated[float, Field(gt=1, le=100)] | None = Field(
        default=None,
        description="of pareto: the smaller, the heavier its tail; the variance is infinite up to 2",
        json_schema_extra={"default": 1.5},
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(given is not None for given in (self.exponential, self.pareto, self.uniform)) != 1:
            raise ValueError("give one of exponential, pareto, uniform")
        if self.shape is not None and self.pareto is None:
            raise ValueError("shape belongs to pareto")
        return self


MaybeRandom = Annotated[
    Annotated[PositiveDuration, Tag("given")] | Annotated[Random, Tag("drawn")],
    Discriminator(lambda value: "drawn" if isinstance(value, dict | Random) else "given"),
]


class RatedPeriod(Strict):
    """A period with a rate of its own."""

    during: Period
    rate: Rate


AnyPeriod = Annotated[
    Annotated[Period, Tag("plain")] | Annotated[RatedPeriod, Tag("rated")],
    Discriminator(lambda value: "rated" if isinstance(value, dict | RatedPeriod) else "plain"),
]


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


class _Iperf3(BaseFlow):
    duration: PositiveDuration | None = Field(
        default=None, description="whole seconds; default: to the scenario's end"
    )
    streams: Annotated[int, Field(ge=1, le=128)] = Field(default=1, description="parallel connections")
    dscp: Dscp | None = Field(default=None, description="0 to 63, or a name such as ef, af41, cs1, le")
    socket_buffer: Annotated[Size, Field(le=2**31 - 1)] | None = Field(
        default=None, description="SO_SNDBUF and SO_RCVBUF at both ends; default: the kernel tunes them"
    )


class TcpFlow(_Iperf3):
    """Bulk transfer over TCP by iperf3, for a time. A transfer of a known size is a flow of kind http."""

    kind: Literal["iperf3_tcp"]
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

    @model_validator(mode="before")
    @classmethod
    def _no_bytes(cls, given: Any) -> Any:
        if isinstance(given, dict) and "bytes" in given:
            raise ValueError(
                "iperf3 ends a transfer of `bytes` when it has written them, and what has not arrived by "
                f"then never does: use kind http with count: 1 and size: {given['bytes']}"
            )
        return given


class Iperf3UdpFlow(_Iperf3):
    """Constant bit rate over UDP by iperf3."""

    kind: Literal["iperf3_udp"]
    rate: Rate = Field(description="payload, all streams together")


class UdpFlow(BaseFlow):
    """UDP at a scheduled rate by the agent itself, whose receiver counts every datagram."""

    kind: Literal["udp"]
    rate: Rate = Field(description="payload, while it is active")
    datagram: Annotated[Size, Field(ge=32, le=65507)] = Field(
        default=FULL_DATAGRAM_BYTES,
        description="payload of a datagram",
        json_schema_extra={"default": "1472B"},
    )
    active: MaybeRandom | None = Field(
        default=None, description="it sends this long, then is idle, in turns from its start on"
    )
    idle: MaybeRandom | None = Field(default=None, description="with active")
    periods: Annotated[list[AnyPeriod], Field(min_length=1)] | None = Field(
        default=None, description="when it is active, in times since t0, in place of all of these"
    )

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        if (self.active is None) != (self.idle is None):
            raise ValueError("active and idle belong together")
        if self.periods is None:
            return self
        if {"start", "duration", "active", "repeat"} & self.model_fields_set:
            raise ValueError(
                "periods say when it sends: start, duration, active, idle and repeat do not go with them"
            )
        spans = [p.during if isinstance(p, RatedPeriod) else p for p in self.periods]
        for one, other in pairwise(spans):
            if other.start < one.end:
                raise ValueError("periods follow each other in order of time")
        return self


class HttpFlow(BaseFlow):
    """Fetches over HTTP by the agent itself, one after the other.

    The server is on `from` and the client on `to`: data goes from `from` to `to`, as of all kinds. The flow's
    end cuts the fetch under way. Each fetch leaves its times, and what the kernel says of its socket at both
    ends. The kernel chooses the client's ports.
    """

    kind: Literal["http"]
    size: Size = Field(description="body of each answer", examples=["76800B"])
    count: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="fetches, which must be done before the scenario's end; default: as many as there is "
        "time for",
    )
    think: Duration = Field(
        default=0, description="pause after each fetch", json_schema_extra={"default": "0s"}
    )
    connections: Literal["new", "persistent"] = Field(
        default="new", description="new: one for each fetch, ended by the server; persistent: one for all"
    )
    congestion_control: CongestionControl = Field(default="cubic", description="at both ends")

    @model_validator(mode="after")
    def _count_or_duration(self) -> Self:
        if self.count is not None and self.duration is not None:
            raise ValueError("give count or duration, not both")
        return self


class NdtFlow(BaseFlow):
    """A test of M-Lab's Network Diagnostic Tool, version 7, by its own server and client.

    Of a download the server is on `from`, of an upload the client: data goes from `from` to `to`, as of all
    kinds, for 10 s. What the server has measured is kept with the run. It asks for BBR, and does without
    where the kernel has none. The kernel chooses the client's port.
    """

    kind: Literal["ndt7_download", "ndt7_upload"]

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if self.duration is not None:
            raise ValueError(f"an NDT test lasts {NDT_NS // 10**9} s: give it no duration")
        return self


class AtouFlow(BaseFlow):
    """Bulk transfer by atou: over UDP, with TCP's congestion control in the hands of the scenario.

    Its sender tells of itself what tcp_info tells of TCP. It ends with the flow, or after `maxpkts` segments.
    """

    kind: Literal["atou"]
    sender: AtouSender = Field(default_factory=AtouSender, description="default: all as atou has it")
    receiver: AtouReceiver = Field(
        default_factory=AtouReceiver,
        description="default: it acknowledges each segment at once, without SACK",
    )
    mode: Literal["precise", "bulk"] = Field(
        default="precise",
        description="precise: each segment leaves at its own time; bulk: those that may leave at once do so "
        "together, which takes less of the sender's processor",
    )
    trace: bool = Field(
        default=False, description="keep a line for each segment and each ACK, as the original atou did"
    )

    @model_validator(mode="after")
    def _ends_agree(self) -> Self:
        if self.sender.sack and not self.receiver.sack:  # it would recover without, and nothing would say so
            raise ValueError("sack: 1 of the sender needs sack: 1 of the receiver, which has sack: 0")
        return self

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if self.duration is not None and self.duration > MAX_DURATION_NS:
            most, asked = map(units.render_duration, (MAX_DURATION_NS, self.duration))
            raise ValueError(f"a transfer by atou lasts at most {most}, not {asked}")
        return self

    @model_validator(mode="after")
    def _gap_or_trains(self) -> Self:
        if self.mode == "bulk" and self.sender.words().get("gap", "0") != "0":
            raise ValueError("segments with a gap between them do not leave together: mode bulk has none")
        return self


class PingFlow(BaseFlow):
    """Echo requests by ping: the round-trip time while other flows run."""

    kind: Literal["ping"]
    interval: Annotated[Duration, Field(ge=2_000_000)] = Field(
        default=100_000_000, description="between two requests", json_schema_extra={"default": "100ms"}
    )


class CommandFlow(BaseFlow):
    """A program of yours: a client on `from`, a server on `to` if it needs one.

    In their words `{src}`, `{dst}`, `{server_port}` and `{client_port}` stand for addresses and ports that no
    other flow has. They run as the agent's user, without a shell. When the time of one is over, all processes
    that it has started end. To `{server_port}` of the server packets from `{src}` come alone.
    """

    kind: Literal["command"]
    client: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] = Field(
        description="program and arguments, started at `start`",
        examples=[["nc", "-N", "{dst}", "{server_port}"]],
    )
    server: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] | None = Field(
        default=None, description="program and arguments, started before t0 and ended after the phase"
    )
    sample: bool = Field(
        default=False,
        description="sample the connection from `{src}:{client_port}` to `{dst}:{server_port}` at both ends",
    )


Flow = Annotated[
    TcpFlow | Iperf3UdpFlow | UdpFlow | HttpFlow | NdtFlow | AtouFlow | PingFlow | CommandFlow,
    Field(discriminator="kind"),
]
KINDS = [
    kind for flow in get_args(get_args(Flow)[0]) for kind in get_args(flow.model_fields["kind"].annotation)
]
