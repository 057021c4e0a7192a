"""Records the settings of a host before Dumbbell's first change of them, so that they can be restored.

A setting is recorded once, right before the first command that changes it. Later changes, also those made by
hand, do not alter the record. A setting is identified by a kind and a subject, for example ("link", "vec1").
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from . import dumbbell_ethtool as ethtool
from . import dumbbell_link as link
from . import dumbbell_packages as packages
from . import dumbbell_sysctl as sysctl

PLACE = Path("/var/lib/dumbbell/baseline")
GRUB = Path("/etc/default")  # GRUB's settings, from which its menu is made
DKMS = Path("/var/lib/dkms")  # a directory for each registered module and version

Command = list[str]
Qdiscs = list[dict[str, Any]]
Execute = Callable[[Command], tuple[int, str, str]]

# Kinds of settings that exist or not, and the commands that remove them.
UNMAKE = {
    "directory": ["rmdir"],  # leaves it if it is not empty
    "tree": ["rm", "-r"],
    "user": ["userdel"],
    "dkms": ["dkms", "remove", "--all"],
}
# Modules that the kernel loads by itself for a path, a congestion control or a query of sockets.
LOADED = re.compile(r"(sch|cls|act|em|tcp)_\w+|ifb|(inet|udp|tcp|unix|netlink)_diag")
SHOW_UNITS = ["systemctl", "show", "--property=LoadState,ActiveState"]
WRITE = re.compile(r"echo (?P<value>\S+) >(?P<file>/\S+)")


class Setting(NamedTuple):
    """What is recorded and restored as a unit."""

    kind: str
    subject: str

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}".strip()


Values = dict[Setting, Any]
NOOP = {"kind": "noop", "handle": "0:", "root": True, "options": {}}
MODULES = Setting("modules", "")  # names of loaded modules that Dumbbell may have caused to be loaded


# Settings that a command changes


def touched(command: Command) -> list[Setting]:  # noqa: PLR0911
    """Settings that a command of ip, tc, ethtool, sysctl, systemctl, modprobe or sh may change.

    ValueError on an unknown command, because its changes could not be undone.
    """
    tool, rest = command[0], command[1:]
    device = _device(command)
    if tool == "ip" and device:
        # A device gets its first qdisc when it comes up for the first time.
        return [Setting("link", device), Setting("qdisc", device)]
    if tool == "tc" and device:
        return [Setting("qdisc", device)]
    if tool == "ethtool" and rest[0] in ethtool.SET:
        return [Setting(ethtool.SET[rest[0]], rest[1])]
    if tool == "sysctl" and rest[0] == "-w":
        return [Setting("sysctl", rest[1].partition("=")[0])]
    write = WRITE.fullmatch(rest[1]) if command[:2] == ["sh", "-c"] else None
    if write:
        return [Setting("sysfs", write["file"])]
    if tool == "systemctl" and rest[0] in ("start", "stop"):
        return [Setting("unit", rest[1])]
    if tool == "modprobe":
        loads = not rest[0].startswith("-")
        parameters = [Setting("parameters", rest[0])] if loads and rest[1:] else []
        return [Setting("module", rest[0]), *parameters] if loads else []
    raise ValueError(f"`{' '.join(command)}` cannot be undone")


def _device(command: Command) -> str | None:
    for word in ("dev", "name"):
        if word in command[:-1]:
            return command[command.index(word) + 1]
    return None


# Reading


def read(setting: Setting, execute: Execute) -> Any:
    """The current value of a setting, in JSON's types; None if it does not exist."""
    kind, subject = setting
    if kind in READ:
        return READ[kind](subject, execute)
    if kind in UNMAKE:
        return _is_made(setting, execute) or None
    code, out, _ = execute(["ethtool", ethtool.SHOW[kind], subject])
    return None if code else ethtool.changeable(kind, out)


def _read_link(device: str, execute: Execute) -> Any:
    code, out, _ = execute(["ip", "-j", "-d", "address", "show", "dev", device])
    if code:
        return None
    routes = [
        route
        for family in ("-4", "-6")
        for route in _json(execute(["ip", "-j", family, "route", "show", "dev", device]))
    ]
    return link.parse(json.loads(out)[0], routes)


def _read_qdiscs(device: str, execute: Execute) -> Qdiscs:
    """Explicitly configured qdiscs. A device that was never up has noop, of which tc says nothing."""
    code, out, _ = execute(["tc", "-j", "-d", "qdisc", "show", "dev", device])
    dump = json.loads(out or "[]") if code == 0 else None
    return own_qdiscs([dict(NOOP)] if dump == [] else dump or [])


def _read_modules(execute: Execute) -> list[str]:
    loaded = Path("/proc/modules")
    lines = loaded.read_text().splitlines() if loaded.exists() else []  # none on a kernel without modules
    return sorted(name for name in (line.split()[0] for line in lines) if LOADED.fullmatch(name))


def _read_service(name: str, execute: Execute) -> dict[str, str] | None:
    enabled, active = (execute(["systemctl", verb, name])[1] for verb in ("is-enabled", "is-active"))
    known = enabled.strip() not in ("", "not-found")
    return {"enabled": enabled.strip(), "active": active.strip()} if known else None


def activities(names: Iterable[str], execute: Execute) -> dict[str, str | None]:
    """Whether units of systemd are active or inactive, by name; None if the host lacks one."""
    names = list(names)
    said = execute([*SHOW_UNITS, *names])[1] if names else ""
    shown = [dict(line.split("=", 1) for line in of.splitlines()) for of in said.strip().split("\n\n")]

    def activity(of: dict[str, str]) -> str | None:
        if of["LoadState"] != "loaded":
            return None
        return "active" if of["ActiveState"] in ("active", "reloading", "activating") else "inactive"

    return {name: activity(shown[number]) for number, name in enumerate(names)}


def _read_parameters(module: str, execute: Execute) -> dict[str, str] | None:
    """The parameters of a loaded module, except write-only ones."""
    folder = Path("/sys/module", module)
    if not folder.exists():
        return None
    found = {}
    for file in sorted((folder / "parameters").glob("*")):
        try:
            found[file.name] = file.read_text().strip()
        except OSError:
            continue
    return found


READ: dict[str, Callable[[str, Execute], Any]] = {
    "link": _read_link,
    "qdisc": _read_qdiscs,
    "sysctl": lambda name, execute: sysctl.read(name),
    "sysfs": lambda file, execute: sysctl.canonical(Path(file).read_text()) if Path(file).exists() else None,
    "module": lambda name, execute: True if Path("/sys/module", name).exists() else None,
    "parameters": _read_parameters,
    "modules": lambda _, execute: _read_modules(execute),
    "file": lambda file, execute: _stat(Path(file)),
    "kernel": lambda _, execute: execute(["uname", "-r"])[1].strip(),
    "menu": lambda menu, execute: _is_current(Path(menu)),
    "package": packages.presence,
    "service": _read_service,
    "unit": lambda name, execute: activities([name], execute)[name],
}


def _is_made(setting: Setting, execute: Execute) -> bool:
    kind, subject = setting
    if kind == "user":
        return execute(["id", "--user", subject])[0] == 0
    return Path(DKMS if kind == "dkms" else "/", subject).is_dir()


def _stat(file: Path) -> dict[str, Any] | None:
    """Owner, mode and digest of the content of a file."""
    if not file.is_file():
        return None
    stat = file.stat()
    import hashlib  # noqa: PLC0415  loads OpenSSL, and most callers need no digest

    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {"owner": [stat.st_uid, stat.st_gid], "mode": f"{stat.st_mode & 0o7777:04o}", "sha256": digest}


def _is_current(menu: Path) -> bool | None:
    """Whether GRUB's menu is newer than its settings; None without a menu."""
    if not menu.is_file():
        return None
    folder = GRUB / "grub.d"
    sources = [GRUB / "grub", folder, *(folder.iterdir() if folder.is_dir() else [])]
    return all(source.stat().st_mtime_ns <= menu.stat().st_mtime_ns for source in sources if source.exists())


def _json(executed: tuple[int, str, str]) -> Any:
    code, out, _ = executed
    return json.loads(out or "[]") if code == 0 else []


def own_qdiscs(dump: Qdiscs) -> Qdiscs:
    """Root and ingress qdiscs that were configured explicitly; the kernel's own have the handle 0."""
    return [
        {key: value for key, value in qdisc.items() if key not in ("dev", "refcnt")}
        for qdisc in dump
        if qdisc["handle"] != "0:" or qdisc["kind"] == "noop"
    ]


# Recording


def copy_of(file: str, place: Path = PLACE) -> Path:
    """Where the copy of a file is kept."""
    return place / "files" / quote(file, safe="")


def load(place: Path = PLACE) -> Values:
    """The settings recorded on this host."""
    file = place / "settings.json"
    if not file.exists():
        return {}
    kinds = json.loads(file.read_text())
    return {Setting(kind, subject): value for kind, of in kinds.items() for subject, value in of.items()}


def save(values: Values, place: Path = PLACE) -> None:
    """Replace the record atomically; if it is empty, remove it, and the directory around it if empty too."""
    if not values:
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):
            place.parent.rmdir()
        return
    kinds: dict[str, dict[str, Any]] = {}
    for (kind, subject), value in values.items():
        kinds.setdefault(kind, {})[subject] = value
    write(place / "settings.json", kinds)


def write(file: Path, content: Any) -> None:
    """Replace a file, readable by root only, atomically."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        json.dump(content, opened, indent=1)
        opened.flush()
        os.fsync(opened.fileno())
    part.replace(file)


def record(settings: Iterable[Setting], read: Callable[[Setting], Any], place: Path = PLACE) -> list[Setting]:
    """Record the values of these settings, unless they are recorded; returns those that were not."""
    values = load(place)
    missing = [setting for setting in dict.fromkeys(settings) if setting not in values]
    found = {setting: read(setting) for setting in missing}
    for (kind, subject), value in found.items():
        if kind == "file" and value is not None:
            copy = copy_of(subject, place)
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy2(subject, copy)
            os.chown(copy, *value["owner"])
    if missing:
        save(values | found, place)
    return missing
