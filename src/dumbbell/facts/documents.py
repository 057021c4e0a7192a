"""The files that hosts and agents write: their keys and the types of the values.

A missing key is a fault. Additional keys are allowed, because hosts may report more; a test checks that every
key that the agent can write is declared here.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError


class Document(BaseModel):
    """A file with mandatory keys and strict types; other keys are ignored."""

    model_config = ConfigDict(strict=True, extra="allow")


def faults(document: type[BaseModel], content: Any, name: str) -> list[str]:
    """Faults in the content of a file, one sentence each; none if it is as declared."""
    try:
        document.model_validate(content)
    except ValidationError as error:
        return [
            f"{'.'.join([name, *map(str, fault['loc'])])}: {fault['msg'].lower()}" for fault in error.errors()
        ]
    return []


# --- written by the agent -------------------------------------------------------------------------


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


class TcpStream(Document):
    """A stream as both ends of a flow of kind tcp tell of it."""

    bytes: PositiveInt
    first_unix_ns: PositiveInt
    last_unix_ns: PositiveInt
    calls: PositiveInt
    congestion_control: str
    mss_bytes: int = Field(ge=1, le=2**16)
    send_buffer_bytes: int = Field(ge=1, le=2**31)
    receive_buffer_bytes: int = Field(ge=1, le=2**31)
    dscp: int = Field(ge=0, le=63)
    no_delay: bool


class TcpSentStream(TcpStream):
    """A stream as its sender tells of it."""

    connected_unix_ns: PositiveInt
    confirmed_bytes: NonNegativeInt


class TcpReceivedStream(TcpStream):
    """A stream as its receiver tells of it."""

    end_seen: bool


class TcpSender(Document):
    """``tcp-FLOW-sender.json``."""

    unix_ns: PositiveInt
    asked_bytes: NonNegativeInt
    interval_bytes: list[NonNegativeInt]
    streams: list[TcpSentStream]


class TcpReceiver(Document):
    """``tcp-FLOW-receiver.json``."""

    unix_ns: PositiveInt
    interval_bytes: list[NonNegativeInt]
    foreign: NonNegativeInt
    streams: list[TcpReceivedStream]


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
