"""What each file that hosts and agents leave has to say: every key, in its type.

A key that is missing is a fault. Keys beyond these are not, for hosts may tell more; a test sees to it that
what the agent can write is here.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError


class Document(BaseModel):
    """Every key is there, in its own type; others are let pass."""

    model_config = ConfigDict(strict=True, extra="allow")


def faults(document: type[BaseModel], content: Any, name: str) -> list[str]:
    """What is wrong with the content of a file."""
    try:
        document.model_validate(content)
    except ValidationError as error:
        return [
            f"{'.'.join([name, *map(str, fault['loc'])])}: {fault['msg'].lower()}" for fault in error.errors()
        ]
    return []


# --- the state of a host --------------------------------------------------------------------------


class Interface(Document):
    """An interface of the experiment, of which ethtool may tell more."""

    mtu: PositiveInt
    txqueuelen: NonNegativeInt
    gso_max_segs: PositiveInt
    qdisc: str
    qdisc_options: dict[str, Any]
    qdisc_leaves: list[str]
    routes: list[dict[str, Any]]
    # Groups of settings that somebody asks for.
    offloads: dict[str, bool | None]
    rings: dict[str, Any] = Field(default={})
    coalescing: dict[str, Any] = Field(default={})
    pause: dict[str, Any] = Field(default={})
    channels: dict[str, Any] = Field(default={})


class LoadedModule(Document):
    """A module, or what is built in in its place."""

    srcversion: str | None
    build_id: str | None
    parameters: dict[str, str]


class Modules(Document):
    """Modules and congestion controls."""

    loaded: dict[str, LoadedModule]
    available: list[str] = Field(min_length=1)
    allowed: list[str] = Field(min_length=1)


class Clock(Document):
    """How well the clock follows the testbed's."""

    synchronised: bool
    offset_ns: int
    root_dispersion_ns: int
    server: str
    source: str


class Devices(Document):
    """Where a direction has its bottleneck and its delay line."""

    bottleneck: str
    delay_line: str


class Ways(Document):
    """Devices of both directions."""

    forward: Devices
    reverse: Devices


class EmulatedPath(Document):
    """What a router has, in the words of the plan."""

    forward: dict[str, Any]
    reverse: dict[str, Any]
    trim_us: int
    burst_us: int
    devices: Ways


class State(Document):
    """``state.json``: what was read back before the traffic."""

    kernel: str = Field(min_length=1)
    versions: dict[str, Any]
    hardware: dict[str, Any]
    nic: dict[str, Interface] = Field(min_length=1)
    sysctl: dict[str, str]
    modules: Modules
    path: dict[str, Any] | None
    clock: Clock


class OwnedState(State):
    """The same of runs that own settings: what was asked of each, and what was found."""

    boot_id: str = Field(min_length=1)
    cpu: dict[str, str]
    owned: dict[str, list[Any]]
    tcp_metrics: dict[str, Any]


# --- what the agent leaves ------------------------------------------------------------------------


class Status(Document):
    """``status.json``."""

    state: str
    reason: str
    unix_ns: PositiveInt
    version: str = Field(min_length=1)
    lead_ns: PositiveInt
    iperf3: str


class Start(Document):
    """``start.json``."""

    t0_unix_ns: PositiveInt


class UdpSender(Document):
    """``udp-FLOW-sender.json``."""

    unix_ns: PositiveInt
    asked_packets: NonNegativeInt
    sent_packets: NonNegativeInt
    sent_bytes: NonNegativeInt
    skipped_packets: NonNegativeInt
    dropped_packets: NonNegativeInt
    late_max_ns: int
    asked_bps: float
    sent_bps: float
    first_unix_ns: PositiveInt
    last_unix_ns: PositiveInt
    batches: PositiveInt
    refusals: NonNegativeInt
    too_large: NonNegativeInt
    gso: bool
    cpu_ns: NonNegativeInt


class UdpReceiver(Document):
    """``udp-FLOW-receiver.json``."""

    unix_ns: PositiveInt
    received_packets: PositiveInt
    received_bytes: PositiveInt
    lost_packets: NonNegativeInt
    reordered_packets: NonNegativeInt
    duplicate_packets: NonNegativeInt
    stale_packets: NonNegativeInt
    socket_drops: NonNegativeInt
    delay_packets: NonNegativeInt
    delay_min_ns: int
    delay_mean_ns: int
    delay_max_ns: int
    end_seen: bool
    received_bps: float
    first_unix_ns: PositiveInt
    last_unix_ns: PositiveInt
    delay_p50_ns: int
    delay_p90_ns: int
    delay_p99_ns: int
    delay_p999_ns: int
    foreign_packets: NonNegativeInt
    kernel_stamps: bool
    gro: bool
    buffer_bytes: PositiveInt
    cpu_ns: NonNegativeInt


class HttpReceiver(Document):
    """``http-FLOW-receiver.json``, of the client."""

    asked: NonNegativeInt
    begun: NonNegativeInt
    done: NonNegativeInt
    failed: NonNegativeInt
    cut: NonNegativeInt
    connections: NonNegativeInt


class HttpSender(Document):
    """``http-FLOW-sender.json``, of the server."""

    served: NonNegativeInt
    connections: NonNegativeInt
    foreign: NonNegativeInt


class TcpPing(Document):
    """``tcp-ping-NAME.json``."""

    sent: PositiveInt
    rtts_ns: list[PositiveInt]
