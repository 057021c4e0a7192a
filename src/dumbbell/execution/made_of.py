"""Digests of the inputs of a host's provisioning: roles, and the variables and files that they read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

INVENTORY = "variables of the inventory, or files that they name"
# Each guess of a password costs 16 MiB and about 40 ms.
COST = {"n": 2**14, "r": 8, "p": 1}
# Variables that describe how Ansible was called, not the host.
OF_ANSIBLE = {"hostvars", "vars", "omit", "environment", "playbook_dir", "role_path"}


def files_of(role: Path) -> list[Path]:
    """Sorted files of a role that determine what it does."""
    return [file for file in files_below(role) if file.name != "README.md"]


def variables_of(role: Path, known: Iterable[str]) -> set[str]:
    """The known variables that a role's files mention, and that it can therefore read."""
    words = set[str]().union(*(re.findall(r"\w+", _text(file)) for file in files_of(role)))
    return {
        name
        for name in words.intersection(known) - OF_ANSIBLE
        if name == "ansible_host" or not name.startswith("ansible_")
    }


def made_of(host: str, roles: Iterable[Path], variables: Mapping[str, Any], checkout: Path) -> dict[str, str]:
    """Digests by the names of their inputs, which messages use to say what has changed.

    They are the same in every checkout. Variables may be secrets, which could be guessed from a plain digest.
    """
    found = {f"role {role.name}": digest_of(files_of(role), role) for role in roles}
    said = json.dumps(variables, default=str, sort_keys=True).replace(f"{checkout}/", "")
    named = digest_of(sorted({file for value in _strings(variables) for file in _named(value)}), checkout)
    secret = hashlib.scrypt(f"{said}\n{named}".encode(), salt=host.encode(), dklen=32, **COST)
    return found | {INVENTORY: secret.hex()}


def digest_of(files: Iterable[Path], root: Path) -> str:
    """Digest of files in this order: names below ``root``, whether they can be run, contents."""
    digest = hashlib.sha256()
    for file in files:
        name = file.relative_to(root) if file.is_relative_to(root) else file
        runs = bool(file.stat().st_mode & 0o111)
        with file.open("rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
        digest.update(f"{name} {runs} {content}\n".encode())
    return digest.hexdigest()


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, Iterable):
        for each in value:
            yield from _strings(each)


def _named(value: str) -> list[Path]:
    """The file that a value names, or the files of a module's source. Other directories do not count."""
    if not value.startswith("/") or "\n" in value:
        return []
    path = Path(value)
    if path.is_file():
        return [path]
    return files_below(path) if (path / "Makefile").is_file() else []


def files_below(folder: Path) -> list[Path]:
    """All files below a directory, sorted, but for compiled Python."""
    return sorted(file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def _text(file: Path) -> str:
    return file.read_text(errors="replace")
