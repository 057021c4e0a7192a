"""TCP congestion controls of a host: what is available, in which build, what could be loaded, what lacks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any, NamedTuple

# net/ipv4 also holds modules of that prefix which are no congestion control.
OTHER_MODULES = {"diag"}
MODULE_FILE = re.compile(r"(?P<path>(?:.*/)?tcp_(?P<name>\w+)\.ko(?:\.\w+)?)")
# Note of type 3 (NT_GNU_BUILD_ID), owner GNU, with a SHA-1: elf(5).
BUILD_ID = re.compile(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0(.{20})", re.DOTALL)


class ModuleFile(NamedTuple):
    """What a module's file says of itself; None for what it does not say."""

    srcversion: str | None
    build_id: str | None
    parameters: frozenset[str]


class Loaded(NamedTuple):
    """A control in the running kernel: its build (None if built in or unknown) and its parameters' values."""

    srcversion: str | None
    build_id: str | None
    parameters: dict[str, str]
    read_only: frozenset[str]


class Controls(NamedTuple):
    """Congestion controls by name, as a host has them at one moment.

    `loaded` and `files` are of the controls asked for only.
    """

    available: list[str]
    allowed: list[str]
    loadable: list[str]
    loaded: dict[str, Loaded]
    files: dict[str, ModuleFile]


class Asked(NamedTuple):
    """Controls to have, parameters by control and name, and exactly those that any user may choose.

    With `allowed` None they are what is allowed already, and `controls`.
    """

    controls: list[str]
    parameters: dict[str, dict[str, str]]
    allowed: list[str] | None


def loadable(modules_dep: str) -> dict[str, str]:
    """Control to the relative path of its module (any compression), as depmod chose them for modprobe."""
    files = (line.partition(":")[0] for line in modules_dep.splitlines())
    matches = filter(None, map(MODULE_FILE.fullmatch, files))
    return {match["name"]: match["path"] for match in matches if match["name"] not in OTHER_MODULES}


def build_id(notes: bytes) -> str | None:
    """Hexadecimal build id in a module's notes, or anywhere in its file."""
    match = BUILD_ID.search(notes)
    return match[1].hex() if match else None


def describe(elf: bytes) -> ModuleFile:
    """What a module's file says of itself in its notes and its section .modinfo."""
    source = re.search(rb"(?:^|\0)srcversion=(\w+)\0", elf)
    parameters = re.findall(rb"(?:^|\0)parmtype=(\w+):", elf)
    return ModuleFile(
        source[1].decode() if source else None, build_id(elf), frozenset(name.decode() for name in parameters)
    )


def canonical(value: object) -> str:
    """A parameter's value as text; the kernel shows booleans as Y and N, and takes 1 and 0 too."""
    text = str(int(value) if isinstance(value, bool) else value).strip()
    return {"Y": "1", "N": "0"}.get(text, text)


def missing(asked: Iterable[str], found: Controls) -> list[str]:
    """Controls asked for that this host neither has nor can load."""
    return [name for name in asked if name not in {*found.available, *found.loadable}]


def unknown_parameters(asked: Asked, found: Controls) -> dict[str, tuple[list[str], list[str]]]:
    """Control to (parameters asked for that it does not have, those that it has)."""
    wrong = {}
    for name, values in asked.parameters.items():
        if name not in found.loaded and name not in found.files:
            continue  # not known before it is loaded
        has: set[str] = set(found.loaded[name].parameters) if name in found.loaded else set()
        if name in found.files:
            has |= found.files[name].parameters
        if lacking := sorted(set(values) - has):
            wrong[name] = (lacking, sorted(has))
    return wrong


def stale(name: str, found: Controls) -> bool:
    """Whether the build that is loaded is not the one in the module's file."""
    if name not in found.loaded or name not in found.files:
        return False
    loaded, file = found.loaded[name], found.files[name]
    pairs = ((loaded.srcversion, file.srcversion), (loaded.build_id, file.build_id))
    return any(one != other for one, other in pairs if one and other)


def wrong_parameters(name: str, asked: Asked, found: Controls) -> dict[str, tuple[str, str | None]]:
    """Parameter to (asked, found) of a control that is loaded."""
    has = found.loaded[name].parameters if name in found.loaded else {}
    values = asked.parameters.get(name, {})
    return {
        parameter: (value, has.get(parameter))
        for parameter, value in values.items()
        if canonical(has.get(parameter)) != canonical(value)
    }


def _allowed(asked: Asked, found: Controls) -> list[str]:
    return asked.allowed or list(dict.fromkeys([*found.allowed, *asked.controls]))


def mismatches(asked: Asked, found: Controls) -> dict[str, tuple[Any, Any]]:
    """What differs to (asked, found)."""
    wrong: dict[str, tuple[Any, Any]] = {}
    for name in asked.controls:
        if name not in found.available:
            wrong[name] = ("available", found.available)
            continue
        if stale(name, found):
            wrong[f"build of {name}"] = (found.files[name][:2], found.loaded[name][:2])
        for parameter, values in wrong_parameters(name, asked, found).items():
            wrong[f"{parameter} of {name}"] = values
    if set(found.allowed) != set(_allowed(asked, found)):
        wrong["allowed"] = (_allowed(asked, found), found.allowed)
    return wrong


def plan(asked: Asked, found: Controls) -> list[list[str]]:
    """Load what is not there, and anew what is another build; set parameters; then allow to any user."""
    commands = []
    reloaded = False
    for name in asked.controls:
        values = asked.parameters.get(name, {})
        load = ["modprobe", f"tcp_{name}", *(f"{parameter}={value}" for parameter, value in values.items())]
        wrong = wrong_parameters(name, asked, found)
        if name not in found.available:
            commands.append(load)
        elif stale(name, found) or (name in found.loaded and wrong.keys() & found.loaded[name].read_only):
            commands += [["modprobe", "--remove", f"tcp_{name}"], load]
            reloaded = True
        else:
            for parameter, (value, _) in wrong.items():
                write = f"echo {shlex.quote(value)} >/sys/module/tcp_{name}/parameters/{parameter}"
                commands.append(["sh", "-c", write])
    allowed = _allowed(asked, found)
    # A control that was taken out is no longer allowed when it comes back.
    if reloaded or set(allowed) != set(found.allowed):
        commands.append(["sysctl", "-w", f"net.ipv4.tcp_allowed_congestion_control={' '.join(allowed)}"])
    return commands


def predict(asked: Asked, found: Controls) -> Controls:
    """The controls after the plan."""
    loaded = dict(found.loaded)
    for name in asked.controls:
        values = asked.parameters.get(name, {})
        if name in found.files and (name not in found.available or stale(name, found)):
            file = found.files[name]
            loaded[name] = Loaded(file.srcversion, file.build_id, dict(values), frozenset())
        elif name in loaded:
            loaded[name] = loaded[name]._replace(parameters=loaded[name].parameters | values)
    return found._replace(
        available=list(dict.fromkeys([*found.available, *asked.controls])),
        allowed=_allowed(asked, found),
        loaded=loaded,
    )


def report(asked: Asked, found: Controls) -> dict[str, Any]:
    """What users see; controls asked for come with the build that is loaded and its parameters."""
    nothing = Loaded(None, None, {}, frozenset())
    loaded = {name: found.loaded.get(name, nothing) for name in asked.controls if name in found.available}
    return {
        "available": found.available,
        "allowed": found.allowed,
        "congestion_controls": {
            name: {"srcversion": one.srcversion, "build_id": one.build_id, "parameters": one.parameters}
            for name, one in loaded.items()
        },
    }
