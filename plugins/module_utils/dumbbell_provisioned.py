"""How its roles left a host, and what they made that of, so that they run again only where something differs.

The record is beside that of what the host had before.
"""

from __future__ import annotations

import json
import pwd
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils import dumbbell_baseline as baseline
from ansible.module_utils.dumbbell_baseline import Execute, Setting

# What roles leave. Settings of the running kernel are read each time, by point_state.
KINDS = ("file", "service", "directory", "user", "package", "dkms", "tree")
FILE = "provisioned.json"
QUERY = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Abbrev}${Version}\\n"]
SHOW = ["systemctl", "show", "--property=ActiveState,UnitFileState"]


def record(
    made_of: dict[str, str], packages: Sequence[str], execute: Execute, place: Path = baseline.PLACE
) -> None:
    """Write down how the host is left; `made_of` has digests of what that was made of, by names."""
    left = _read(managed(baseline.load(place)), packages, execute)
    settings = [[*setting, value] for setting, value in left.items()]
    baseline.write(place / FILE, {"made_of": made_of, "left": settings})


def forget(place: Path = baseline.PLACE) -> None:
    """Until roles have come to their end nothing is known of how they leave the host."""
    (place / FILE).unlink(missing_ok=True)


def differs(
    made_of: dict[str, str], packages: Sequence[str], execute: Execute, place: Path = baseline.PLACE
) -> list[str]:
    """Names of what is other than it was left, or is made of something else by now; nothing if all is so."""
    try:
        was = json.loads((place / FILE).read_text())
        left = {Setting(kind, subject): value for kind, subject, value in was["left"]}
        names = _other(was["made_of"], made_of)
    except (OSError, ValueError, KeyError):
        return ["no provisioning of it has come to its end"]
    return names + _other(left, _read(left, packages, execute))


def managed(recorded: Iterable[Setting]) -> list[Setting]:
    """What roles make, of what is recorded before they do; with the directories of their files."""
    made = [setting for setting in recorded if setting.kind in KINDS]
    around = (Setting("directory", str(Path(each.subject).parent)) for each in made if each.kind == "file")
    return list(dict.fromkeys([*made, *around]))


def _other(was: dict[Any, Any], now: dict[Any, Any]) -> list[str]:
    """Also those that only one of them knows, whatever it knows of them."""
    return sorted(str(name) for name in was.keys() | now.keys() if was.get(name, was) != now.get(name, now))


def _read(settings: Iterable[Setting], packages: Sequence[str], execute: Execute) -> dict[Setting, Any]:
    """Closer than the baseline, which returns no more than it must."""
    of: dict[str, list[str]] = {}
    for kind, subject in settings:
        of.setdefault(kind, []).append(subject)
    found: dict[Setting, Any] = {}
    for kind, read in (
        ("file", lambda file: baseline.read(Setting("file", file), execute)),
        ("directory", _read_directory),
        ("tree", _read_directory),
        ("user", _read_user),
        ("dkms", lambda name: _names(baseline.DKMS / name)),
    ):
        found |= {Setting(kind, subject): read(subject) for subject in of.get(kind, [])}
    found |= _read_services(of.get("service", []), execute)
    return found | _read_packages([*of.get("package", []), *packages], execute)


def _read_directory(path: str) -> list[int] | None:
    if not Path(path).is_dir():
        return None
    stat = Path(path).stat()
    return [stat.st_mode & 0o7777, stat.st_uid, stat.st_gid]


def _read_user(name: str) -> list[Any] | None:
    try:
        return list(pwd.getpwnam(name)[2:])
    except KeyError:
        return None


def _names(folder: Path) -> list[str] | None:
    """Of a module and version that DKMS knows: the kernels that it is built for."""
    return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else None


def _read_services(names: Sequence[str], execute: Execute) -> dict[Setting, Any]:
    if not names:
        return {}
    code, out, err = execute([*SHOW, *names])
    blocks = out.strip().split("\n\n")
    if code or len(blocks) != len(names):
        raise ValueError(f"systemctl does not tell how {', '.join(names)} are: {(err or out).strip()}")
    return {
        Setting("service", name): sorted(block.split("\n")) for name, block in zip(names, blocks, strict=True)
    }


def _read_packages(names: Sequence[str], execute: Execute) -> dict[Setting, Any]:
    """Of those that are not there nothing."""
    lines = execute([*QUERY, *names])[1].splitlines() if names else []
    found: dict[Setting, Any] = {Setting("package", name): None for name in names}
    return found | {Setting("package", line.split()[0]): line for line in lines}
