"""The content of ``state.json``, the state of a host before the traffic."""

from __future__ import annotations

from typing import Any

from pydantic import Field, NonNegativeInt, PositiveInt

from dumbbell.facts.documents import Document


class Interface(Document):
    """An interface of the experiment; ethtool may report further settings.

    Each size that a scenario can set has a field here and an entry in SIZES of
    plugins/module_utils/dumbbell_link.py; a test compares the two.
    """

    mtu: PositiveInt
    txqueuelen: NonNegativeInt
    gso_max_segs: PositiveInt
    qdisc: str
    qdisc_options: dict[str, Any]
    qdisc_leaves: list[str]
    routes: list[dict[str, Any]]
    # Groups of settings that a scenario may set.
    offloads: dict[str, bool | None]
    rings: dict[str, Any] = Field(default={})
    coalescing: dict[str, Any] = Field(default={})
    pause: dict[str, Any] = Field(default={})
    channels: dict[str, Any] = Field(default={})


SIZES = tuple(name for name, field in Interface.model_fields.items() if field.annotation is int)
# ethtool's groups of settings, and their names among the owned settings.
GROUPS = {"offloads": "feature", "rings": "ring", "coalescing": "coalescing", "pause": "pause",
          "channels": "channels"}  # fmt: skip


class LoadedModule(Document):
    """A kernel module; its features may be built into the kernel instead."""

    srcversion: str | None
    build_id: str | None
    parameters: dict[str, str]


class Modules(Document):
    """Kernel modules and congestion controls."""

    loaded: dict[str, LoadedModule]
    available: list[str] = Field(min_length=1)
    allowed: list[str] = Field(min_length=1)


class Clock(Document):
    """The offset of the host's clock from the testbed's clock."""

    synchronised: bool
    offset_ns: int
    root_dispersion_ns: int
    server: str
    source: str


class Devices(Document):
    """The devices that hold a direction's bottleneck and delay line."""

    bottleneck: str
    delay_line: str


class Ways(Document):
    """The devices of both directions."""

    forward: Devices
    reverse: Devices


class EmulatedPath(Document):
    """The emulated path of a router, with the plan's keys."""

    forward: dict[str, Any]
    reverse: dict[str, Any]
    trim_us: int
    burst_us: int
    devices: Ways


class State(Document):
    """``state.json``: the settings that were read back before the traffic."""

    kernel: str = Field(min_length=1)
    versions: dict[str, Any]
    hardware: dict[str, Any]
    nic: dict[str, Interface] = Field(min_length=1)
    sysctl: dict[str, str]
    modules: Modules
    path: dict[str, Any] | None
    clock: Clock


class OwnedState(State):
    """``state.json`` of a run that owns settings: for each setting the requested and the found value."""

    boot_id: str = Field(min_length=1)
    cpu: dict[str, str]
    owned: dict[str, list[Any]]
    tcp_metrics: dict[str, Any]
