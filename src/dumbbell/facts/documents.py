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


# --- events ---------------------------------------------------------------------------------------


class Event(Document):
    """A line of ``events.jsonl``."""

    unix_ns: PositiveInt
    mono_ns: PositiveInt
    event: str


class Armed(Event):
    """The agent waits for t0."""

    nice: int


class StartReceived(Event):
    """It knows t0."""

    t0_unix_ns: PositiveInt


class OfFlow(Event):
    """Something of a flow."""

    flow: str


class FlowPlanned(OfFlow):
    """When a flow begins."""

    planned_unix_ns: PositiveInt


class FlowLaunched(OfFlow):
    """One end of a flow has begun."""

    action: str


class FlowHeld(OfFlow):
    """A client was stopped before its first data."""

    held: bool
    lead_ns: int


class FlowReleased(OfFlow):
    """It goes on."""

    planned_unix_ns: PositiveInt
    error_ns: int


class FlowFirstData(OfFlow):
    """Its first data has left the host."""

    planned_unix_ns: PositiveInt
    error_ns: int | None


class FlowCongestionControl(OfFlow):
    """What the kernel has."""

    name: str


class ProcessExit(Event):
    """A program that failed."""

    action: str
    code: int
    stderr: str


class Sampler(Event):
    """How well samples kept time."""

    sampled: NonNegativeInt
    ticks: PositiveInt
    missed: NonNegativeInt
    achieved_interval_ns: NonNegativeInt
    late_max_ns: int


class Finals(Event):
    """Connections whose end was not seen, and messages of the kernel that were lost."""

    open: NonNegativeInt
    lost: NonNegativeInt


class Trace(Event):
    """How much was traced."""

    records: NonNegativeInt
    lost: NonNegativeInt


class Collector(Event):
    """What a host does not have of a source."""

    source: str
    name: str
    reason: str


class PathChanged(Event):
    """A change of the path was made."""

    name: str
    planned_unix_ns: PositiveInt
    error_ns: int
    took_ns: NonNegativeInt
    ok: bool


class PathRestored(Event):
    """Its changes were undone."""

    ok: bool


class Capture(Event):
    """How much was captured."""

    name: str
    packets: NonNegativeInt
    dropped: NonNegativeInt


class ClockStep(Event):
    """The clock was set."""

    step_ns: int


class ClockWatched(Event):
    """What came of watching it."""

    steps: NonNegativeInt
    largest_step_ns: int
    drift_ns: int


class Strangers(Event):
    """Who came to ports that wait for others."""

    open: list[str]


class SpoolMended(Event):
    """What another did for an agent that was killed."""

    torn_bytes: NonNegativeInt


EVENTS: dict[str, type[Event]] = {
    "armed": Armed,
    "start_received": StartReceived,
    "flow_planned": FlowPlanned,
    "flow_launched": FlowLaunched,
    "flow_held": FlowHeld,
    "flow_released": FlowReleased,
    "flow_first_data": FlowFirstData,
    "flow_congestion_control": FlowCongestionControl,
    "process_exit": ProcessExit,
    "sampler": Sampler,
    "finals": Finals,
    "trace": Trace,
    "collector_unavailable": Collector,
    "collector_inexact": Collector,
    "path_changed": PathChanged,
    "path_restored": PathRestored,
    "capture": Capture,
    "clock_step": ClockStep,
    "clock_watched": ClockWatched,
    "strangers": Strangers,
    "spool_mended": SpoolMended,
    "done": Event,
    "failed": Event,
    "aborted": Event,
}
# Keys that an event has at times: why something is not as it should be, and what few have.
OPTIONAL_KEYS = {
    "armed": ("torn_bytes",),
    "flow_held": ("bytes_sent", "reason"),
    "flow_first_data": ("reason",),
    "process_exit": ("flow",),
    "path_changed": ("reason",),
    "strangers": ("packets", "first", "reason"),
    "failed": ("reason",),
    "aborted": ("reason",),
    "done": ("reason",),
}
