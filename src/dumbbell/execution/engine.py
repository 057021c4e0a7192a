"""The engine of states (plugins/module_utils/dumbbell_point.py) as a program that hosts keep until they boot.

A module of Ansible is sent, unpacked and compiled for each task, which takes a slow host more than a second.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shlex
import tarfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dumbbell.execution.on_host import last_json
from dumbbell.execution.reach import Trouble
from dumbbell.places import COLLECTION

SOURCES = COLLECTION / "plugins" / "module_utils"
PLACE = "/run/dumbbell/engine"  # root's; a directory for each version
_PACKAGE = Path("module_utils")
_MISSING = {"missing": True}

Shell = Callable[[str, bytes | None], str]


def call(shell: Shell, python: str, *, check: bool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Bring a host to a state and return the result as the module ``point_state`` does.

    ``python`` is the host's interpreter. Sends the engine if the host lacks this version. Raises
    :class:`~dumbbell.execution.reach.Trouble` with the reason if the host cannot have the state.
    """
    version, archive = packed()
    asked = json.dumps({"arguments": arguments, "check": check}).encode()
    line = _run(version, python)
    answer = last_json(shell(line, asked))
    if answer == _MISSING:
        shell(_install(version), archive)
        answer = last_json(shell(line, asked))
    if reason := answer.pop("refused", None):
        raise Trouble(reason)
    return answer


@cache
def packed() -> tuple[str, bytes]:
    """The engine's version, a digest of its files, and the files as a compressed archive."""
    files = sorted(SOURCES.rglob("*.py"))
    contents = {str(_PACKAGE / file.relative_to(SOURCES)): file.read_bytes() for file in files}
    contents[str(_PACKAGE / "__init__.py")] = b""
    contents["__main__.py"] = b"from module_utils.dumbbell_point import main\n\nmain()\n"
    digest = hashlib.sha256()
    into = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=into, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for name, content in contents.items():
            digest.update(f"{name} {len(content)}\n".encode() + content)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return digest.hexdigest()[:16], into.getvalue()


def _run(version: str, python: str) -> str:
    place = f"{PLACE}/{version}"
    missing = shlex.quote(json.dumps(_MISSING))
    return f"if [ -d {place} ]; then {shlex.quote(python)} -I {place}; else echo {missing}; fi"


def _install(version: str) -> str:
    """Make the directory at once and whole, even if another run does the same."""
    place = f"{PLACE}/{version}"
    part = f"{place}.$$"
    unpack = f"mkdir -p {PLACE} && mkdir -m 0700 {part} && tar -xzf - -C {part} --no-same-owner"
    return f"{unpack} && {{ mv -T {part} {place} 2>/dev/null || {{ rm -rf {part}; test -d {place}; }}; }}"
