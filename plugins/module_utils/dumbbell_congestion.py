"""TCP congestion controls of a host: what is available, what could be loaded, what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

# net/ipv4 also holds modules of that prefix which are no congestion control.
OTHER_MODULES = {"diag"}
MODULE_FILE = re.compile(r"tcp_(\w+)\.ko(\.\w+)?")


class Controls(NamedTuple):
    """Congestion controls by name, as a host has them at one moment."""

    available: list[str]
    allowed: list[str]
    loadable: list[str]
    srcversions: dict[str, str | None]


def loadable(file_names: Iterable[str]) -> list[str]:
    """Controls that the module files (any compression) would bring."""
    matches = (MODULE_FILE.fullmatch(name) for name in file_names)
    return sorted({match[1] for match in matches if match} - OTHER_MODULES)


def missing(asked: Iterable[str], found: Controls) -> list[str]:
    """Controls asked for that this host neither has nor can load."""
    return [name for name in asked if name not in {*found.available, *found.loadable}]


def mismatches(asked: Iterable[str], found: Controls) -> dict[str, tuple[str, list[str]]]:
    """Control to (asked, found)."""
    wrong = {}
    for name in asked:
        if name not in found.available:
            wrong[name] = ("available", found.available)
        elif name not in found.allowed:
            wrong[name] = ("allowed", found.allowed)
    return wrong


def plan(asked: list[str], found: Controls) -> list[list[str]]:
    """Load what is not there, then allow all of them to sockets of any user."""
    commands = [["modprobe", f"tcp_{name}"] for name in asked if name not in found.available]
    allowed = found.allowed + [name for name in asked if name not in found.allowed]
    if allowed != found.allowed:
        commands.append(["sysctl", "-w", f"net.ipv4.tcp_allowed_congestion_control={' '.join(allowed)}"])
    return commands


def predict(asked: list[str], found: Controls) -> Controls:
    """The controls after the plan."""
    return found._replace(
        available=list(dict.fromkeys([*found.available, *asked])),
        allowed=list(dict.fromkeys([*found.allowed, *asked])),
    )


def report(asked: list[str], found: Controls) -> dict[str, Any]:
    """What users see; controls asked for come with their module's srcversion, None when built in."""
    return {
        "available": found.available,
        "allowed": found.allowed,
        "congestion_controls": {
            name: {"srcversion": found.srcversions[name]} for name in asked if name in found.available
        },
    }
