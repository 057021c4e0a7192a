"""Two sets of runs side by side, and the comparison as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell import analysis
from dumbbell.compare.sides import UNEXPLAINED, Sides
from dumbbell.units import human
from dumbbell.words import columns

WORDS = {True: "differ", False: "not shown to differ", None: "too few repetitions"}
NOTHING = "No point of a valid run is in both."


class Comparison(Sides):
    """Of two sets of run directories. OSError or ValueError where the files of a valid run cannot be read."""

    def __init__(
        self,
        first: Iterable[Path | str],
        second: Iterable[Path | str],
        names: tuple[str, str] = ("the first", "the second"),
        accept: Sequence[str] = (),
    ) -> None:
        super().__init__(dict(zip(names, (first, second), strict=True)), accept)

    @cached_property
    def exact(self) -> bool:
        """Whether both are of virtual time, where the same plan gives the same values again."""
        return all(side.digests for side in self.sides)

    @cached_property
    def rows(self) -> pl.DataFrame:
        """:func:`dumbbell.analysis.compare` of the two."""
        return analysis.compare(*(side.values for side in self.sides), exact=self.exact)

    def notes(self) -> list[str]:
        """What :meth:`Sides.notes` has, and which samples of virtual time differ."""
        return [*super().notes(), *(self._samples() if all(side.valid for side in self.sides) else ())]

    def _samples(self) -> Iterator[str]:
        """Of runs in virtual time, which tables of samples are not the same to the last byte."""
        first, second = (side.digests for side in self.sides)
        for (point, repetition), told in first.items():
            if other := second.get((point, repetition)):
                changed = [name for name in told if told[name] != other.get(name)]
                what = f"samples that differ: {', '.join(changed)}" if changed else "all samples are the same"
                yield f"{point}, repetition {repetition}, in virtual time: {what}"

    def head(self) -> tuple[str, ...]:
        """Titles of the columns of :meth:`cells`."""
        one, other = (side.name.removeprefix("the ") for side in self.sides)
        ratio = f"{other} / {one}"
        return ("point", "metric", "of", one, other, ratio, "95 % interval", "detectable", "p", "")

    def text(self) -> str:
        """What is not explained, a table for a terminal, and the notes."""
        first = [UNEXPLAINED, *(f"- {told}" for told in self.unexplained), ""] if self.unexplained else []
        if self.rows.is_empty():
            return "\n".join([*first, NOTHING, *self.notes()])
        lines = [self.head(), *map(self.cells, self.rows.iter_rows(named=True))]
        return "\n".join([*first, *columns(lines), "", *self.notes()]).rstrip()

    def _word(self, differ: bool | None) -> str:
        return "no repetition in common" if differ is None and self.exact else WORDS[differ]

    def cells(self, row: dict[str, Any]) -> tuple[str, ...]:
        """A row of ``rows`` as texts."""
        unit, low = row["unit"], row["low"]
        return (
            row["point"],
            row["metric"],
            row["subject"],
            f"{human(row['median_a'], unit)} ({row['n_a']})",
            f"{human(row['median_b'], unit)} ({row['n_b']})",
            human(row["ratio"]),
            "-" if low is None else f"{human(low)} to {human(row['high'])}",
            human(row["detectable"], "share"),
            human(row["p"]),
            self._word(row["differ"]),
        )
