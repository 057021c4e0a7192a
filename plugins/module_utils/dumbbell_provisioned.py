"""The state of a host after its roles, and the roles' inputs, so that roles run again only if these differ.

The record is kept beside the one of `dumbbell_baseline`.
"""

from __future__ import annotations

import json
import pwd
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import dumbbell_baseline as baseline
from . import dumbbell_packages as packages
from .dumbbell_baseline import Execute, Setting

# Results of roles. Settings of the running kernel are not among them: point_state reads them each time.
KINDS = ("file", "service", "directory", "user", "package", "dkms", "tree")
FILE = "provisioned.json"
SHOW = ["systemctl", "show", "--property=ActiveState,UnitFileState"]


def record(
    made_of: dict[str, str], names: Sequence[str], execute: Execute, place: Path = baseline.PLACE
) -> None:
    """Record the state of the host; `made_of` has digests of the roles' inputs, by name."""
    left = _read(managed(baseline.load(place)), names, execute)
    settings = [[*setting, value] for setting, value in left.items()]
    baseline.write(place / FILE, {"made_of": made_of, "left": settings})


def forget(place: Path = baseline.PLACE) -> None:
    """Remove the record: until the roles complete, the state of the host is not known."""
    (place / FILE).unlink(missing_ok=True)


def differs(
    made_of: dict[str, str], names: Sequence[str], execute: Execute, place: Path = baseline.PLACE
) -> list[str]:
    """Names of settings and inputs that differ from the record; empty if none do."""
    try:
        was = json.loads((place / FILE).read_text())
        left = {Setting(kind, subject): value for kind, subject, value in was["left"]}
        differ = _other(was["made_of"], made_of)
    except (OSError, ValueError, KeyError):
        return ["no provisioning of it has come to its end"]
    return differ + _other(left, _read(left, names, execute))


def managed(recorded: Iterable[Setting]) -> list[Setting]:
    """The settings that roles make, with the directories of their files."""
    made = [setting for setting in recorded if setting.kind in KINDS]
    around = (Setting("directory", str(Path(each.subject).parent)) for each in made if each.kind == "file")
    return list(dict.fromkeys([*made, *around]))


def _other(was: dict[Any, Any], now: dict[Any, Any]) -> list[str]:
    """Keys with different values, including keys that only one of the two has."""
    return sorted(str(name) for name in was.keys() | now.keys() if was.get(name, was) != now.get(name, now))


def _read(settings: Iterable[Setting], names: Sequence[str], execute: Execute) -> dict[Setting, Any]:
    """Read more than the baseline does, which reads only what it restores."""
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
    return found | _read_packages(of.get("package", []), names, execute)


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
    """The kernels that a module and version of DKMS was built for."""
    return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else None


def _read_services(names: Sequence[str], execute: Execute) -> dict[Setting, Any]:
    if not names:
        return {}
    code, out, err = execute([*SHOW, *names])
    blocks = out.strip().split("\n\n")
    if code or len(blocks) != len(names):
        raise ValueError(f"systemctl does not tell how {', '.join(names)} are: {(err or out).strip()}")
    return {
        Setting("service", name): sorted(block.split("\n"))
        for name, block in zip(names, blocks)  # noqa: B905  RHEL 9 has Python 3.9; lengths are compared above
    }


def _read_packages(others: Sequence[str], names: Sequence[str], execute: Execute) -> dict[Setting, Any]:
    """States and versions of packages, None for unknown ones; of others, which came with them, the states."""
    found = packages.states([*others, *names], execute)
    states = {Setting("package", name): found.get(name, "")[:2] for name in others}
    return states | {Setting("package", name): found.get(name) for name in names}
