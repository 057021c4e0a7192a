"""An agent's files as one archive: copied in pieces where only root may read it, and unpacked."""

from __future__ import annotations

import base64
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

PIECE_BYTES = 32 << 20  # in memory at a time


def copy_in_pieces(shell: Callable[[str], str], archive: str, to: Path) -> None:
    """Copy a file that only root may read by ``shell``, which runs a line on the host as root."""
    size, name = int(shell(f"stat -c %s {shlex.quote(archive)}")), shlex.quote(archive)
    with to.open("wb") as file:
        for start in range(0, size, PIECE_BYTES):
            piece = shell(f"tail -c +{start + 1} {name} | head -c {PIECE_BYTES} | base64 -w0")
            file.write(base64.b64decode(piece))


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
