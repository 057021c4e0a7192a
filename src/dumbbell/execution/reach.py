"""A way to reach a host: run commands there, fetch files, apply a state, start and stop agents."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

_MOST_SHOWN = 160  # letters of a line that failed


class Trouble(Exception):
    """An error on a host; the message is for people."""


class Silent(Exception):
    """The host no longer answers."""


class Reach(ABC):
    """A way to reach one host. Every method raises :class:`Silent` if the host does not answer."""

    @abstractmethod
    def shell(self, line: str, stdin: bytes | None = None) -> str:
        """Run a shell line on the host as root and return its output. Raises :class:`Trouble` if it fails."""

    @abstractmethod
    def fetch(self, archives: Mapping[str, Path]) -> None:
        """Pack agents' directories and copy each archive to its place on the controller.

        Raises OSError or :class:`Trouble` on failure.
        """

    @abstractmethod
    def apply(self, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
        """Apply a state to the host and return the result, both as the module ``point_state`` has them.

        With ``check`` nothing is changed. Raises :class:`Trouble` with the reason if it fails.
        """

    def command(self, argv: Sequence[str], stdin: bytes | None = None) -> str:
        """Run a command on the host and return its output. Raises :class:`Trouble` if it fails."""
        return self.shell(shlex.join(argv), stdin)

    def start(self, unit: str, then: str) -> str:
        """Start a unit of systemd, then run a shell line and return its output."""
        return self.shell(f"systemctl start {shlex.quote(unit)} && {then}")

    def stop(self, unit: str) -> None:
        """Stop a unit of systemd and wait until it has ended."""
        self.command(["systemctl", "stop", unit])

    @abstractmethod
    def reconnect(self) -> None:
        """Connect anew after the host did not answer."""


def output(line: str, status: int, said: str) -> str:
    """The output of a shell line. Raises :class:`Trouble` if it failed, with its begin and what it said."""
    if status:
        words = " ".join(said.split())
        begin = shorten(line, _MOST_SHOWN, placeholder=" ...")
        raise Trouble(f"`{begin}` failed: {words or f'it ended with status {status}'}")
    return said
