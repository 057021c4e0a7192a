"""Observed settings of hosts, which agents read before and after a measurement.

A setting has a host and a name. If two points request the same of everything that decides a setting, it must
have the same value at both. :data:`DECIDED_BY` lists what decides which settings. Others are unexplained.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pydantic
from pydantic import BaseModel, ConfigDict

from dumbbell.plan import Point
from dumbbell.plan.document import State

NONE = "none"  # the value of a setting that a host does not have
EMPTY = '""'
DEFAULT_CONTROL = "net.ipv4.tcp_congestion_control"
KERNEL = "kernel release"
LABELS = 3  # most points that a message names for a value


class Reading(BaseModel):
    """All settings of a host at one moment, by name; and errors of those that could not be read."""

    model_config = ConfigDict(strict=True, extra="forbid")
    unix_ns: int
    boot_id: str
    settings: dict[str, str]
    unread: dict[str, str]


class Observed(BaseModel):
    """The content of ``observed.json``: read before the agent was armed, and after the path was restored."""

    model_config = ConfigDict(strict=True, extra="forbid")
    before: Reading
    after: Reading


def read_observed(path: Path) -> Observed:
    """Read ``observed.json``. Raises ValueError if it is missing or malformed."""
    try:
        return Observed.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from None
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"{path.name} is broken: {where}: {first['msg']}") from None


class Change(NamedTuple):
    """A setting with different values; None means that it does not exist."""

    name: str
    before: str | None
    after: str | None


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """Differences between two readings, sorted by name."""
    names = sorted({**before, **after})
    return [Change(n, before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)]


@dataclass(frozen=True)
class Seen:
    """A point, and its hosts' settings during the measurement."""

    label: str  # of the point or its side, for people
    point: Point
    settings: Mapping[str, Mapping[str, str]]  # by host
    trim_us: Mapping[str, int]  # for each router: the path's own delay, which was subtracted
    side: str = ""  # that it is of, if sides may run on kernels that no plan names: in virtual time

    def asked(self, host: str) -> State:
        """The state that the plan requests of a host."""
        return self.point.hosts[host].state

    def emulates(self, host: str) -> bool:
        """Whether a host emulates the point's path."""
        return self.point.path is not None and "routers" in self.point.hosts[host].groups

    def controls(self, host: str) -> set[str]:
        """Congestion controls that flows of a host may use: the requested ones, and the default."""
        asked = self.asked(host)
        loaded = {module.removeprefix("tcp_") for module in asked.modules}
        return {*asked.congestion_controls, *loaded, self.settings[host].get(DEFAULT_CONTROL, "")}

    def qdiscs(self, host: str) -> set[str]:
        """Kinds of qdiscs that interfaces of a host may have: the requested ones, and the default."""
        asked = self.asked(host)
        loaded = {module.removeprefix("sch_") for module in asked.modules}
        return {asked.qdisc or "", *loaded, self.settings[host].get("net.core.default_qdisc", "")}


class Unread(NamedTuple):
    """Settings that may be unread with this error, and why this does not affect a measurement."""

    names: str  # pattern
    reason: str  # pattern of the agent's error
    why: str


MAY_BE_UNREAD = (
    Unread(
        r"\S+ (?:driver|features|ring|coalescing|pause|channels|eee|speed|private flags)",
        r"operation not supported|errno 524",
        "the driver does not have it; some say so by ENOTSUPP, 524, a number of the kernel's own",
    ),
)


def may_be_unread(name: str, reason: str) -> bool:
    """Whether :data:`MAY_BE_UNREAD` has a setting that an agent could not read."""
    return any(re.fullmatch(row.names, name) and re.fullmatch(row.reason, reason) for row in MAY_BE_UNREAD)


# --- settings that other points left --------------------------------------------------------------


class Left(NamedTuple):
    """Settings that do not affect a point: an earlier point left them, and this one does not use them."""

    names: str  # pattern; its group is the control, qdisc or device that a point may use
    unused: Callable[[Seen, str, str], bool]
    reason: str


LEFT = (
    Left(
        r"module tcp_(\S+) .*",
        lambda seen, host, control: control not in seen.controls(host),
        "a congestion control that another point asked for stays loaded; no flow of this point uses it",
    ),
    Left(
        r"module sch_(\S+) .*",
        lambda seen, host, qdisc: not seen.emulates(host) and qdisc not in seen.qdiscs(host),
        "a qdisc that another point asked for stays loaded; no interface of this point has it",
    ),
    Left(
        r"(?:module |qdisc )?(ifb)\S* .*|net\.ipv[46]\.(?:conf|neigh)\.(ifb).*",
        lambda seen, host, _: not seen.emulates(host),
        "the module of another point's path stays loaded, with two interfaces; this point has no path",
    ),
    Left(
        r"(?:\S+ address|route) (fe80|ff00)::.*",
        lambda *_: True,
        "made of an interface's MAC address, which each ifb draws anew; flows have other addresses",
    ),
)


def left(seen: Seen, host: str, name: str) -> bool:
    """Whether a setting of a host is one of :data:`LEFT`."""
    found = ((row, re.fullmatch(row.names, name)) for row in LEFT)
    return any(match and row.unused(seen, host, match[1]) for row, match in found)


# --- keys of the plan that decide settings --------------------------------------------------------


class Decides(NamedTuple):
    """A key of a plan, or the kernel, and the names of the settings that it decides."""

    what: str  # a key of a host's state in the plan, or "path"
    names: str  # pattern
    of: Callable[[Seen, str, str], Any]  # the part of a point's request that concerns the setting


# Sysctls that the kernel sets with another one.
SET_BY = {
    "net.ipv4.ip_forward": ["net.ipv4.conf.all.forwarding"],
    "net.ipv4.tcp_allowed_congestion_control": [DEFAULT_CONTROL],  # the default is allowed
}


def _sysctls(seen: Seen, host: str, name: str) -> Any:
    """The requested value of the sysctl, and of others through which the kernel also sets it."""
    asked, family, last = seen.asked(host).sysctls, name.split(".")[1], name.rsplit(".", 1)[-1]
    through = [name, *SET_BY.get(name, ())]
    if ".conf." in name:
        through += [f"net.{family}.conf.{tree}.{last}" for tree in ("all", "default")]
        through += ["net.ipv4.ip_forward"] * (last == "forwarding")
    return [asked.get(one) for one in through]


def _module(seen: Seen, host: str, name: str) -> Any:
    module, asked = name.split()[1], seen.asked(host)
    used = module in asked.modules or module.removeprefix("tcp_") in asked.congestion_controls
    return asked.modules.get(module), used


def _path(seen: Seen, host: str, _: str) -> Any:
    """A router's path, and its own delay, which was measured and is checked by the idle RTT."""
    if not seen.emulates(host) or seen.point.path is None:
        return None
    return seen.point.path.model_dump(), seen.trim_us.get(host)


_QUEUES = r"(?:qdisc|class|filter) .*"
DECIDED_BY = (
    Decides(
        "kernel",
        r"kernel release|kernel version",
        lambda seen, host, _: (seen.asked(host).kernel, seen.side),
    ),
    Decides("modules", r"module .*", _module),
    Decides("sysctls", r"net\..*", _sysctls),
    Decides("sysctls", _QUEUES, lambda seen, host, _: seen.asked(host).sysctls.get("net.core.default_qdisc")),
    Decides(
        "congestion_controls",
        r"net\.ipv4\.tcp_allowed_congestion_control",
        lambda seen, host, _: (seen.asked(host).congestion_controls, sorted(seen.asked(host).modules)),
    ),
    Decides(
        "offloads",
        r"\S+ (?:feature .*|gso_\S+|gro_\S+)",
        lambda seen, host, _: seen.asked(host).offloads,
    ),
    # A queue without its own limit uses the device's txqueuelen.
    Decides("txqueuelen", rf"\S+ txqueuelen|{_QUEUES}", lambda seen, host, _: seen.asked(host).txqueuelen),
    # The quantum of fq and fq_codel depends on the MTU, and IPv6 has its own MTU.
    Decides(
        "mtu",
        rf"\S+ (?:mtu|gso_\S+|gro_\S+)|net\.ipv6\.conf\.[^.]+\.mtu|{_QUEUES}",
        lambda seen, host, _: seen.asked(host).mtu,
    ),
    Decides("qdisc", rf"module sch_\S+ .*|{_QUEUES}", lambda seen, host, _: seen.asked(host).qdisc),
    Decides("routes", r"route .*", lambda seen, host, _: seen.asked(host).routes),
    Decides(
        "path",
        rf"{_QUEUES}|ifb\S* .*|module (?:ifb|sch_\S+|act_\S+|cls_\S+) .*|net\.ipv[46]\.(?:conf|neigh)\.ifb.*",
        _path,
    ),
)
# Another kernel has other settings and defaults, but not of the site: addresses, rules, services.
BY_KERNEL = (
    r"kernel version|kernel command line|mitigation .*|clock source|module .*|net\..*"
    r"|governor|idle .*|pstate driver|frequency .*|turbo|smt"
    # Tunnels that a kernel makes by itself if it has their module.
    r"|(?:sit|tunl|ip6tnl|gre|gretap|erspan|ip_vti|ip6_vti|ip6gre)0 .*"
    # Defaults of a driver.
    r"|\S+ (?:feature .*|private flag .*|driver|driver version|gso_\S+|gro_\S+|coalescing .*|ring .*)"
    r"|\S+ (?:channels .*|pause .*|eee .*|[rt]x queues|[rt]x-\d+ .*|threaded|napi_\S+)|irq affinity .*"
    rf"|{_QUEUES}"
)


def _deciders(name: str) -> list[Decides]:
    found = [row for row in DECIDED_BY if re.fullmatch(row.names, name)]
    if re.fullmatch(BY_KERNEL, name):
        found.append(Decides("kernel", BY_KERNEL, lambda seen, host, _: seen.settings[host].get(KERNEL)))
    return found


@dataclass(frozen=True)
class Difference:
    """A setting of a host that differs between points, and the keys of the plan that explain it."""

    host: str
    name: str
    values: Mapping[str, Sequence[str]]  # labels of the points with each value
    because: tuple[str, ...]  # keys of the plan; empty if no key explains it

    def __str__(self) -> str:
        return f"{self.host} {self.told}"

    @property
    def told(self) -> str:
        """The setting with its values, without the host."""
        total = Counter(label for labels in self.values.values() for label in labels)
        found = []
        for value, labels in self.values.items():
            own = Counter(labels)
            named = [
                label if count == total[label] else f"{count} of {total[label]} of {label}"
                for label, count in own.items()
            ]
            more = f" and {len(named) - LABELS} more" if len(named) > LABELS else ""
            found.append(f"{value or EMPTY} in {', '.join(named[:LABELS])}{more}")
        return f"{self.name}: {'; '.join(found)}"

    @property
    def json(self) -> dict[str, Any]:
        """For ``verdict.json``."""
        return {
            "host": self.host,
            "setting": self.name,
            "values": {v: [*of] for v, of in self.values.items()},
        }


def differences(points: Sequence[Seen]) -> list[Difference]:
    """Settings that differ between points, unexplained ones first, then by host and name.

    A host is compared between the points that have it.
    """
    found: list[Difference] = []
    for host in dict.fromkeys(host for seen in points for host in seen.settings):
        own = [seen for seen in points if host in seen.settings]
        for name in _unlike([seen.settings[host] for seen in own]):
            values = [
                (seen, NONE if left(seen, host, name) else seen.settings[host].get(name, NONE))
                for seen in own
            ]
            if len({value for _, value in values}) > 1:
                found.append(_difference(host, name, values))
    return sorted(found, key=lambda one: bool(one.because))


def _unlike(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Names whose value is not the same in all readings."""
    different = {id(of): of for of in settings}.values()
    values: dict[str, set[str | None]] = {name: set() for of in different for name in of}
    for name, found in values.items():
        found.update(of.get(name) for of in different)
    return sorted(name for name, found in values.items() if len(found) > 1)


def _difference(host: str, name: str, values: Sequence[tuple[Seen, str]]) -> Difference:
    deciders = _deciders(name)
    asked: dict[str, list[tuple[Seen, str]]] = {}  # points with the same request of all deciding keys
    for seen, value in values:
        asked.setdefault(repr([row.of(seen, host, name) for row in deciders]), []).append((seen, value))
    unlike = [one for group in asked.values() if len({value for _, value in group}) > 1 for one in group]
    because = () if unlike else tuple(_that_differ(host, name, deciders, [seen for seen, _ in values]))
    shown: dict[str, list[str]] = {}
    for seen, value in unlike or values:
        shown.setdefault(value, []).append(seen.label)
    return Difference(host, name, shown, because)


def _that_differ(host: str, name: str, deciders: Iterable[Decides], points: Sequence[Seen]) -> list[str]:
    differ = [row.what for row in deciders if len({repr(row.of(seen, host, name)) for seen in points}) > 1]
    return list(dict.fromkeys(differ))


def unexplained(found: Iterable[Difference], accepted: Sequence[str] = ()) -> list[Difference]:
    """Differences without an explanation whose name is not accepted; ``accepted`` has names and globs."""
    return [
        one
        for one in found
        if not one.because and not any(fnmatchcase(one.name, pattern) for pattern in accepted)
    ]


def by_hosts(found: Iterable[Difference]) -> list[str]:
    """A line for each difference; hosts with the same difference share a line."""
    hosts: dict[str, list[str]] = {}
    for one in found:
        hosts.setdefault(one.told, []).append(one.host)
    return [f"{', '.join(of)} {told}" for told, of in hosts.items()]


# --- the testbed ----------------------------------------------------------------------------------


def of_the_testbed(seen: Seen, host: str) -> dict[str, str]:
    """Settings that are the same in all runs of a point: all but its path's, whose delay is measured."""
    path = next(row for row in DECIDED_BY if row.what == "path")

    def of_the_path(name: str) -> bool:
        return seen.emulates(host) and re.fullmatch(path.names, name) is not None

    settings = seen.settings[host].items()
    return {name: value for name, value in settings if not (left(seen, host, name) or of_the_path(name))}


def digest(settings: Mapping[str, str]) -> str:
    """Digest of settings, equal for equal settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
