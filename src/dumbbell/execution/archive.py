"""Fetch an agent's files as one archive, and unpack them."""

from __future__ import annotations

import base64
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

PIECE_BYTES = 32 << 20  # in memory at a time, if only root may read the archive


def fetch(connection: Any, shell: Callable[[str], str], archive: str, home: Path) -> None:
    """Copy an archive of a host to ``HOME.tgz`` and unpack it into ``home``. Raises OSError on failure.

    Uses SFTP if the login account may read the archive; otherwise ``shell``, which runs a line on the host as
    root, and copies in pieces.
    """
    local = home.with_suffix(".tgz")
    local.parent.mkdir(parents=True, exist_ok=True)
    if connection.become is None:
        connection.fetch_file(archive, str(local))
    else:
        size, name = int(shell(f"stat -c %s {shlex.quote(archive)}")), shlex.quote(archive)
        with local.open("wb") as file:
            for start in range(0, size, PIECE_BYTES):
                piece = shell(f"tail -c +{start + 1} {name} | head -c {PIECE_BYTES} | base64 -w0")
                file.write(base64.b64decode(piece))
    home.mkdir(exist_ok=True)
    command = [
        "tar",
        "--extract",
        "--gzip",
        "--file",
        str(local),
        "--directory",
        str(home),
        "--no-same-owner",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{local} cannot be unpacked: {done.stderr.strip()}")
