"""Problems of a scenario, and their place in its file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Key = str | int
KeyPath = tuple[Key, ...]


@dataclass(frozen=True)
class Problem:
    """One problem of a scenario, and its place in the file."""

    file: str
    line: int
    column: int
    key: str
    reason: str

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return f"{self.file}:{self.line}:{self.column}: {key}{self.reason}"


class ScenarioError(Exception):
    """A scenario that cannot be run; ``problems`` lists everything found, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(dict.fromkeys(problems), key=lambda p: (p.line, p.column))
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def render_key(key: Sequence[Key]) -> str:
    """``("flows", "tcp", "periods", 1)`` as ``flows.tcp.periods[1]``."""
    return "".join(f"[{k}]" if isinstance(k, int) else f".{_word(k)}" for k in key).removeprefix(".")


def _word(key: str) -> str:
    return key if re.fullmatch(r"[\w.$-]+", key) else repr(key)
