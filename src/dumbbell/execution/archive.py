"""An agent's files as one archive: packed, copied in pieces as only root may read it, and unpacked."""

from __future__ import annotations

import base64
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

PIECE_BYTES = 16 << 20  # in memory at a time


def pack(folders: Iterable[str]) -> str:
    """A shell line that packs agents' directories. Most agents have done it, but not one that was killed."""
    return " && ".join(shlex.join(["dumbbell-agent", "archive", folder]) for folder in folders)


def fetch(shell: Callable[[str], str], archives: Mapping[str, Path], then: str = ":") -> None:
    """Pack agents' directories and copy the archives, which only root may read, and run a line.

    ``archives`` has the archive's place for each directory, ``shell`` runs a line on the host as root. Each
    line costs a connection. One is enough, unless an archive is larger than a piece. Of a host whose disk is
    full, where nothing can be packed, the archive comes as one piece that is not stored there.
    """
    first = shell(
        f"for dir in {shlex.join(archives)}; do "
        'if said=$(dumbbell-agent archive "$dir" 2>&1); then '
        f'head -c {PIECE_BYTES} "$dir.tgz" | base64 -w0; '
        'elif test -d "$dir"; then tar --create --gzip --directory "$dir" . 2>/dev/null | base64 -w0; '
        'else echo "$said"; exit 1; fi; echo; '
        f"done && {then}"
    )
    for folder, to, text in zip(archives, archives.values(), first.splitlines(), strict=True):
        name = shlex.quote(f"{folder}.tgz")
        with to.open("wb") as file:
            file.write(piece := base64.b64decode(text))
            while len(piece) == PIECE_BYTES:
                rest = f"tail -c +{file.tell() + 1} {name} | head -c {PIECE_BYTES} | base64 -w0"
                file.write(piece := base64.b64decode(shell(rest)))


def unpack(archive: Path, home: Path) -> None:
    """Unpack an archive into a directory. Raises OSError if it is damaged."""
    home.mkdir(exist_ok=True)
    command = [
        "tar",
        "--extract",
        "--gzip",
        "--file",
        str(archive),
        "--directory",
        str(home),
        "--no-same-owner",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{archive} cannot be unpacked: {done.stderr.strip()}")
