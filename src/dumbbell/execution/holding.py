"""Who holds a host, and the secret that the ends of atou share."""

from __future__ import annotations

import getpass
import os
import platform
import secrets
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any


def holder(run: str, seconds: int) -> dict[str, Any]:
    """The holder of a host's lock, shown to others who want the host."""
    return {"run": run, "owner": owner(), "seconds": seconds}


def owner() -> str:
    """The user who started the run, and the machine: ``user@machine``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        user = str(os.getuid())
    return f"{user}@{platform.node()}"


def token(point_dir: Path) -> str:
    """The secret of atou's ends, the same for all hosts of a point; :func:`forget_token` removes it."""
    file = point_dir / ".token"
    with NamedTemporaryFile("w", dir=point_dir) as drawn:  # readable by this user only
        drawn.write(secrets.token_hex(32))
        drawn.flush()
        with suppress(FileExistsError):  # the action of another host was faster
            os.link(drawn.name, file)
    return file.read_text()


def forget_token(point_dir: Path) -> None:
    """Remove the secret from the controller."""
    (point_dir / ".token").unlink(missing_ok=True)
