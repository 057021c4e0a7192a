"""Lists of names, and columns, in messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def listed(names: Iterable[object]) -> str:
    """``a, b, c``, sorted; ``none`` for nothing."""
    return ", ".join(sorted(map(str, names))) or "none"


def known_are(word: str, known: Iterable[str]) -> str:
    """What to write instead of an unknown word: the close one, or else all that are known."""
    known = list(known)
    return did_you_mean(word, known) or (f"; it has {listed(known)}" if known else "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``, did you mean X?`` if a known word is close; nothing else."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f", did you mean {close[0]}?" if close else ""


def columns(rows: Sequence[Sequence[str]], between: str = "  ") -> list[str]:
    """Rows of cells as lines, in columns as wide as their cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [between.join(map(str.ljust, row, widths)).rstrip() for row in rows]
