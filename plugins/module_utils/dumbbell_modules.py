"""Kernel modules and congestion controls of a host: available ones, loaded ones, and their builds."""

from __future__ import annotations

import difflib
import gzip
import json
import lzma
import os
import re
import shlex
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

SYSCTLS = Path("/proc/sys/net/ipv4")
MODULES = Path("/lib/modules", os.uname().release)
SYSFS = Path("/sys/module")
GIVEN = Path("/run/dumbbell/parameters.json")  # removed by a boot, like the parameters it records
UNPACK: dict[str, Callable[[bytes], bytes]] = {".ko": bytes, ".xz": lzma.decompress, ".gz": gzip.decompress}

# net/ipv4 also has modules with this prefix that are no congestion controls.
NO_CONTROLS = {"tcp_diag"}
MODULE_FILE = re.compile(r"(?:.*/)?(?P<name>[^/]+)\.ko(?:\.\w+)?")
# Note of type 3 (NT_GNU_BUILD_ID), owner GNU, with a SHA-1: elf(5).
BUILD_ID = re.compile(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0(.{20})", re.DOTALL)


class ModuleFile(NamedTuple):
    """Metadata in a module's file; None for missing values."""

    srcversion: str | None
    build_id: str | None
    parameters: frozenset[str]


class Loaded(NamedTuple):
    """A loaded module: its build (None if built in or unknown) and the values of its parameters."""

    srcversion: str | None
    build_id: str | None
    parameters: dict[str, str]
    read_only: frozenset[str]


class Modules(NamedTuple):
    """The modules and congestion controls of a host at one moment, by name.

    `loaded`, which includes built-in modules, and `files` contain requested modules only.
    """

    available: list[str]
    allowed: list[str]
    loadable: list[str]
    loaded: dict[str, Loaded]
    files: dict[str, ModuleFile]


class Asked(NamedTuple):
    """The request: modules with parameters, congestion controls, and the exact list of allowed controls.

    With `allowed` None, `controls` are added to the allowed ones. `aliases` are the host's `control_aliases`.
    """

    modules: dict[str, dict[str, str]]
    controls: list[str]
    allowed: list[str] | None
    aliases: Mapping[str, str] = MappingProxyType({})

    @property
    def names(self) -> list[str]:
        """The requested modules, including those of the controls."""
        of_controls = map(module_of, self.controls)
        return list(dict.fromkeys([*self.modules, *(self.aliases.get(name, name) for name in of_controls)]))


def module_of(control: str) -> str:
    """The name by which modprobe finds the module of a congestion control, unless it is built in."""
    return f"tcp_{control}"


def control_of(module: str) -> str | None:
    """The congestion control in a module, by the module's name; None if it has none."""
    return None if module in NO_CONTROLS or not module.startswith("tcp_") else module[len("tcp_") :]


def module_files(modules_dep: str) -> dict[str, str]:
    """The relative path of each module's file (any compression), as depmod chose it for modprobe.

    `modules.builtin` has the same format.
    """
    files = (line.partition(":")[0] for line in modules_dep.splitlines())
    matches = filter(None, map(MODULE_FILE.fullmatch, files))
    return {match["name"].replace("-", "_"): match[0] for match in matches}


def control_aliases(modules_alias: str) -> dict[str, str]:
    """The module of each congestion control whose module has several, by modprobe's alias."""
    return dict(re.findall(r"^alias (tcp_(?!ulp_)\w+) (\w+)$", modules_alias, re.MULTILINE))


def build_id(notes: bytes) -> str | None:
    """Hexadecimal build id in a module's notes, or anywhere in its file."""
    match = BUILD_ID.search(notes)
    return match[1].hex() if match else None


def describe(elf: bytes) -> ModuleFile:
    """The metadata in the notes and the section .modinfo of a module's file."""
    source = re.search(rb"(?:^|\0)srcversion=(\w+)\0", elf)
    parameters = re.findall(rb"(?:^|\0)parmtype=(\w+):", elf)
    return ModuleFile(
        source[1].decode() if source else None, build_id(elf), frozenset(name.decode() for name in parameters)
    )


def canonical(value: object) -> str:
    """A parameter's value as text; the kernel shows booleans as Y and N, and accepts 1 and 0 too."""
    text = str(int(value) if isinstance(value, bool) else value).strip()
    return {"Y": "1", "N": "0"}.get(text, text)


def refusals(asked: Asked, found: Modules) -> Iterable[str]:
    """Requests that this host cannot fulfil, each with the alternatives that it has."""
    controls = sorted({*found.available, *filter(None, map(control_of, found.loadable))})
    if lacking := [name for name in asked.controls if name not in controls]:
        had = ", ".join(controls)
        yield f"asked for congestion control {', '.join(lacking)}, which this host lacks; it has {had}"
    for name in asked.modules:
        if name not in found.loaded and name not in found.loadable:
            near = [f"; did you mean {n}?" for n in difflib.get_close_matches(name, found.loadable, n=1)]
            yield "".join([f"asked for module {name}, which this host lacks", *near])
        elif name in found.loaded or name in found.files:  # otherwise not known before it is loaded
            has = set(found.loaded[name].parameters if name in found.loaded else ())
            has |= found.files[name].parameters if name in found.files else set()
            if wrong := sorted(set(asked.modules[name]) - has):
                had = ", ".join(sorted(has)) or "none"
                yield f"asked for parameter {', '.join(wrong)} of module {name}, which lacks it; it has {had}"


def stale(name: str, found: Modules) -> bool:
    """Whether the loaded build differs from the module's file."""
    if name not in found.loaded or name not in found.files:
        return False
    loaded, file = found.loaded[name], found.files[name]
    pairs = ((loaded.srcversion, file.srcversion), (loaded.build_id, file.build_id))
    return any(one != other for one, other in pairs if one and other)


def wrong_parameters(name: str, asked: Asked, found: Modules) -> dict[str, tuple[str, str | None]]:
    """Parameter to (requested, found) of a loaded module."""
    has = found.loaded[name].parameters if name in found.loaded else {}
    return {
        parameter: (value, has.get(parameter))
        for parameter, value in asked.modules.get(name, {}).items()
        if canonical(has.get(parameter)) != canonical(value)
    }


def _allowed(asked: Asked, found: Modules) -> list[str]:
    return asked.allowed or list(dict.fromkeys([*found.allowed, *asked.controls]))


def mismatches(asked: Asked, found: Modules) -> dict[str, tuple[Any, Any]]:
    """Name to (requested, found) of everything that differs."""
    wrong: dict[str, tuple[Any, Any]] = {}
    for name in asked.names:
        if name not in found.loaded:
            wrong[name] = ("loaded", None)
            continue
        if stale(name, found):
            wrong[f"build of {name}"] = (found.files[name][:2], found.loaded[name][:2])
        for parameter, values in wrong_parameters(name, asked, found).items():
            wrong[f"{parameter} of {name}"] = values
    if set(found.allowed) != set(_allowed(asked, found)):
        wrong["allowed"] = (_allowed(asked, found), found.allowed)
    return wrong


def plan(asked: Asked, found: Modules, again: Collection[str] = ()) -> list[list[str]]:
    """Load missing modules, reload those of another build, set parameters, then allow controls to any user.

    Modules in `again` are reloaded in any case.
    """
    commands = []
    reloaded = False
    for name in asked.names:
        values = asked.modules.get(name, {})
        load = ["modprobe", name, *(f"{parameter}={value}" for parameter, value in values.items())]
        wrong = wrong_parameters(name, asked, found)
        if name not in found.loaded:
            commands.append(load)
        elif name in again or stale(name, found) or wrong.keys() & found.loaded[name].read_only:
            commands += [["modprobe", "--remove", name], load]
            reloaded = True
        else:
            for parameter, (value, _) in wrong.items():
                write = f"echo {shlex.quote(value)} >/sys/module/{name}/parameters/{parameter}"
                commands.append(["sh", "-c", write])
    allowed = _allowed(asked, found)
    # A control that was unloaded is no longer allowed when it is loaded again.
    if reloaded or set(allowed) != set(found.allowed):
        commands.append(["sysctl", "-w", f"net.ipv4.tcp_allowed_congestion_control={' '.join(allowed)}"])
    return commands


def predict(asked: Asked, found: Modules) -> Modules:
    """The modules after the plan."""
    loaded = dict(found.loaded)
    for name in asked.names:
        values = asked.modules.get(name, {})
        if name not in loaded or stale(name, found):
            file = found.files.get(name, ModuleFile(None, None, frozenset()))
            loaded[name] = Loaded(file.srcversion, file.build_id, dict(values), frozenset())
        else:
            loaded[name] = loaded[name]._replace(parameters=loaded[name].parameters | values)
    return found._replace(
        available=list(dict.fromkeys([*found.available, *asked.controls])),
        allowed=_allowed(asked, found),
        loaded=loaded,
    )


def report(asked: Asked, found: Modules) -> dict[str, Any]:
    """The state for users; requested modules have their loaded build and parameters."""
    return {
        "available": found.available,
        "allowed": found.allowed,
        "loaded": {
            name: {"srcversion": one.srcversion, "build_id": one.build_id, "parameters": one.parameters}
            for name, one in found.loaded.items()
            if name in asked.names
        },
    }


# Reading


def _read_or(file: Path, default: bytes) -> bytes:
    return file.read_bytes() if file.exists() else default


def _is_live(name: str) -> bool:
    """Whether the kernel has finished loading a module; another load would wait for that."""
    directory = SYSFS / name
    return directory.exists() and _read_or(directory / "initstate", b"live").strip() == b"live"


def read_loaded(name: str) -> Loaded:
    """A module that is loaded or built in."""
    module = SYSFS / name
    files = {file.name: file for file in (module / "parameters").glob("*")}
    values = {}
    for parameter, file in files.items():
        try:
            values[parameter] = file.read_text().strip()
        except OSError:  # write-only
            continue
    return Loaded(
        _read_or(module / "srcversion", b"").decode().strip() or None,
        build_id(_read_or(module / "notes/.note.gnu.build-id", b"")),
        values,
        frozenset(parameter for parameter, file in files.items() if not file.stat().st_mode & stat.S_IWUSR),
    )


def read_aliases() -> dict[str, str]:
    """`control_aliases` of this host."""
    return control_aliases(_read_or(MODULES / "modules.alias", b"").decode())


def read(asked: Asked) -> Modules:
    """Modules and congestion controls of this host."""
    available = (SYSCTLS / "tcp_available_congestion_control").read_text().split()
    allowed = (SYSCTLS / "tcp_allowed_congestion_control").read_text().split()
    modules, built_in = (
        module_files(_read_or(MODULES / name, b"").decode()) for name in ("modules.dep", "modules.builtin")
    )
    # A file in a compression that Python cannot read gives no metadata.
    files = {name: MODULES / modules[name] for name in asked.names if name in modules}
    return Modules(
        available,
        allowed,
        sorted({*modules, *asked.aliases}),
        {
            name: read_loaded(name)
            for name in asked.names
            # Built-in modules have a directory only if they have parameters.
            if _is_live(name) or name in built_in or control_of(name) in available
        },
        {
            name: describe(UNPACK[file.suffix](file.read_bytes()))
            for name, file in files.items()
            if file.suffix in UNPACK
        },
    )


# Parameters that Dumbbell gave to modules

Given = dict[str, dict[str, str]]
WRITE = re.compile(r"echo (?P<value>\S+) >/sys/module/(?P<name>[^/]+)/parameters/(?P<parameter>\S+)")


def given_after(given: Given, commands: Iterable[list[str]], kept: bool = False) -> Given:
    """The parameters that modules have from Dumbbell after the commands, by module.

    The kernel does not tell which parameters a module was loaded with. With `kept`, the result also has those
    that modules lose by the commands.
    """
    found = {name: dict(values) for name, values in given.items()}
    for command in commands:
        if command[0] == "modprobe":
            first, *rest = command[1:]
            if first.startswith("-"):
                for name in [] if kept else rest:
                    found.pop(name, None)
            elif rest:
                found.setdefault(first, {}).update(dict(word.split("=", 1) for word in rest))
        elif command[:2] == ["sh", "-c"] and (write := WRITE.fullmatch(command[2])):
            found.setdefault(write["name"], {})[write["parameter"]] = shlex.split(write["value"])[0]
    return found


def read_given() -> Given:
    """The parameters given since the boot."""
    try:
        given: Given = json.loads(GIVEN.read_text())
    except (OSError, ValueError):
        return {}
    return given


def remember(commands: Iterable[list[str]], kept: bool = False) -> None:
    """Record the parameters that commands give: with `kept` before them, and again afterwards."""
    before = read_given()
    after = given_after(before, commands, kept)
    if after != before:
        GIVEN.parent.mkdir(mode=0o755, exist_ok=True)
        part = GIVEN.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(after))
        part.replace(GIVEN)
