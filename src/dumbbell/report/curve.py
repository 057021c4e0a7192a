"""A curve small enough for the cell of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

EDGE = 5  # around the drawing, in pixels


@dataclass(frozen=True)
class Mark:
    """A value of a curve, or a gap. ``edge`` is the class of a line before it."""

    value: float | None
    title: str
    met: bool = True
    href: str = ""
    edge: str = ""


@dataclass(frozen=True)
class Curve:
    """The values, oldest first, at least one known, on a drawing of this size in pixels."""

    marks: Sequence[Mark]
    width: int = 240
    height: int = 36

    @property
    def step(self) -> float:
        """The distance between two marks."""
        return (self.width - 2 * EDGE) / max(len(self.marks) - 1, 1)

    @cached_property
    def placed(self) -> list[tuple[Mark, float, float]]:
        """Each mark and its position; a gap is at the bottom."""
        known = [mark.value for mark in self.marks if mark.value is not None]
        low, span = min(known), max(known) - min(known)
        bottom, room = self.height - EDGE, self.height - 2 * EDGE
        found = []
        for number, mark in enumerate(self.marks):
            y = float(bottom)
            if mark.value is not None:
                y -= room * ((mark.value - low) / span if span else 0.5)
            found.append((mark, EDGE + number * self.step, y))
        return found

    @property
    def lines(self) -> list[list[tuple[float, float]]]:
        """Points to be joined; a line ends at each edge."""
        lines: list[list[tuple[float, float]]] = [[]]
        for mark, x, y in self.placed:
            if mark.edge:
                lines.append([])
            if mark.value is not None:
                lines[-1].append((x, y))
        return lines
