"""What is shown beside an item of an original: tables, pictures, lines of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import plotly.graph_objects as go

from dumbbell.units import human
from tools.seeds.originals import Original
from tools.seeds.runs import Runs


class Number(NamedTuple):
    """A value and its unit as :func:`dumbbell.units.human` knows it; None is not known."""

    value: float | None
    unit: str = ""

    def __str__(self) -> str:
        return human(self.value, self.unit)


Cell = str | Number


@dataclass(frozen=True)
class Table:
    """Rows by their first cell, which is that of the original's row where there is one."""

    head: Sequence[str]  # of all columns but the first
    rows: Mapping[str, Sequence[Cell]]
    of: str = ""  # head of the first column; by default the original's

    def number(self, row: str, column: str) -> float | None:
        """The value of a cell; KeyError or ValueError if there is none of these names."""
        cell = self.rows[row][list(self.head).index(column)]
        return cell.value if isinstance(cell, Number) else None

    def beside(self, original: Original) -> str:
        """As Markdown, after the columns of the original; without it ``Original()``."""
        of, *told = original.head or [self.of]
        names = [*original.rows, *(row for row in self.rows if row not in original.rows)]
        body = []
        for name in names:
            theirs = original.rows.get(name, ["-"] * len(told))
            ours = self.rows.get(name, ["-"] * len(self.head))
            body.append([name, *theirs, *map(str, ours)])
        return lines([self.of or of, *(f"original: {column}" for column in told), *self.head], body)


@dataclass(frozen=True)
class Picture:
    """A figure with a sentence below it."""

    figure: go.Figure
    caption: str


@dataclass(frozen=True)
class Excerpt:
    """Lines of a file."""

    text: str


Part = Table | Picture | Excerpt
Show = Callable[[Runs], Iterator[Part]]

SHOWS: dict[tuple[str, str], Show] = {}  # by the names of seed and item


def shows(seed: str, *items: str) -> Callable[[Show], Show]:
    """Decorate what is shown of items; it raises Missing with a sentence where there is nothing to show."""

    def register(show: Show) -> Show:
        SHOWS.update({(seed, item): show for item in items})
        return show

    return register


def lines(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *body))
