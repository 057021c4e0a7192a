"""Ports that no other connection of a phase uses, on either host."""

from __future__ import annotations

from collections import defaultdict

FIRST_SERVER_PORT = 5201
FIRST_CLIENT_PORT = 10_001
EPHEMERAL = (
    32_768,
    60_999,
)  # net.ipv4.ip_local_port_range: ports that the kernel chooses from
LAST_PORT = 65_535


class Ports:
    """Gives out ports of every host, in ascending order and outside its ephemeral range."""

    def __init__(self, ephemeral: dict[str, tuple[int, int]]) -> None:
        self._ephemeral = ephemeral
        self._taken: dict[str, set[int]] = defaultdict(set)

    def take(self, host: str, first: int, count: int = 1) -> int | None:
        """The first of ``count`` consecutive ports from ``first`` on; None if there are none left."""
        low, high = self._ephemeral.get(host, EPHEMERAL)
        taken, port = self._taken[host], first
        while port + count - 1 <= LAST_PORT:
            last = port + count - 1
            if port <= high and last >= low:
                port = high + 1
            elif clash := max((p for p in range(port, last + 1) if p in taken), default=0):
                port = clash + 1
            else:
                taken.update(range(port, last + 1))
                return port
        return None


def parse_range(text: str) -> tuple[int, int] | None:
    """Both ends of ``net.ipv4.ip_local_port_range``; None if the text is not two ports."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() and len(word) < 6 for word in words):  # noqa: PLR2004
        return None
    return int(words[0]), int(words[1])
