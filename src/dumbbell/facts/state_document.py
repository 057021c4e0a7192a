"""``state.json``: what the state of a host has to say."""

from __future__ import annotations

from typing import Any

from pydantic import Field, NonNegativeInt, PositiveInt

from dumbbell.facts.documents import Document


class Interface(Document):
    """An interface of the experiment, of which ethtool may tell more.

    A number that interfaces are asked to have is one field here, and one in SIZES of the host's half,
    plugins/module_utils/dumbbell_link.py; a test compares them.
    """

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


SIZES = tuple(name for name, field in Interface.model_fields.items() if field.annotation is int)
# Groups of ethtool's settings, and what each of them is called among owned settings.
GROUPS = {"offloads": "feature", "rings": "ring", "coalescing": "coalescing", "pause": "pause",
          "channels": "channels"}  # fmt: skip


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
