"""Sets of runs side by side, and the comparison as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell import analysis
from dumbbell.compare.sides import UNEXPLAINED, Sides
from dumbbell.units import human
from dumbbell.words import columns

WORDS = {True: "differ", False: "not shown to differ", None: "too few repetitions"}
# In virtual time a value that is not the same shows that something has an effect, not that means differ.
WORDS_EXACT = {True: "other values", False: "the same values", None: "no repetition in common"}
NOTHING = "No point of a valid run is in both."


class Comparison(Sides):
    """Sets of run directories; each is compared with the first. ``names`` are those of the sets."""

    def __init__(
        self,
        first: Iterable[Path | str],
        second: Iterable[Path | str],
        names: Sequence[str] = ("the first", "the second"),
        accept: Sequence[str] = (),
        others: Sequence[Iterable[Path | str]] = (),
    ) -> None:
        super().__init__(dict(zip(names, (first, second, *others), strict=True)), accept)

    @cached_property
    def exact(self) -> bool:
        """Whether all are of virtual time, where the same plan gives the same values again."""
        return all(side.digests for side in self.sides)

    @cached_property
    def rows(self) -> pl.DataFrame:
        """:func:`dumbbell.analysis.compare` of the first and each other, whose name is ``side``."""
        first, *others = self.sides
        return pl.concat(
            analysis.compare(first.values, other.values, exact=self.exact).with_columns(
                side=pl.lit(other.name)
            )
            for other in others
        )

    def notes(self) -> list[str]:
        """What :meth:`Sides.notes` has, and which samples of virtual time differ."""
        return [*super().notes(), *(self._samples() if all(side.valid for side in self.sides) else ())]

    def _samples(self) -> Iterator[str]:
        """Of runs in virtual time, which tables of samples are not the same to the last byte."""
        first, *others = self.sides
        for other in others:
            of = f"{other.name}: " if len(others) > 1 else ""
            for (point, repetition), told in first.digests.items():
                if there := other.digests.get((point, repetition)):
                    changed = [name for name in told if told[name] != there.get(name)]
                    what = (
                        f"samples that differ: {', '.join(changed)}"
                        if changed
                        else "all samples are the same"
                    )
                    yield f"{of}{point}, repetition {repetition}, in virtual time: {what}"

    def head(self) -> tuple[str, ...]:
        """Titles of the columns of :meth:`cells`."""
        one, *others = (side.name.removeprefix("the ") for side in self.sides)
        if len(others) == 1:
            ratio = f"{others[0]} / {one}"
            return ("point", "metric", "of", one, others[0], ratio, "95 % interval", "detectable", "p", "")
        each = ((other, "ratio", "95 % interval", "") for other in others)
        return ("point", "metric", "of", one, *(title for titles in each for title in titles))

    def text(self) -> str:
        """What is not explained, a table for a terminal, and the notes."""
        first = [UNEXPLAINED, *(f"- {told}" for told in self.unexplained), ""] if self.unexplained else []
        if self.rows.is_empty():
            return "\n".join([*first, NOTHING, *self.notes()])
        return "\n".join([*first, *columns([self.head(), *self.cells()]), "", *self.notes()]).rstrip()

    def cells(self) -> list[tuple[str, ...]]:
        """``rows`` as texts: a line for each metric, with all sides."""
        if len(self.sides) == 2:  # noqa: PLR2004
            return [
                (
                    *(*self._named(row), *self._both(row)),
                    *(human(row["detectable"], "share"), human(row["p"]), self._word(row["differ"])),
                )
                for row in self.rows.iter_rows(named=True)
            ]
        lines: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
        for row in self.rows.iter_rows(named=True):
            lines.setdefault(self._named(row), {})[row["side"]] = row
        return [
            (*key, _median(next(iter(found.values())), "a"), *self._of_others(found))
            for key, found in lines.items()
        ]

    def _of_others(self, found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        for side in self.sides[1:]:
            if row := found.get(side.name):
                yield from (*self._both(row)[1:], self._word(row["differ"]))
            else:
                yield from ("-", "-", "-", "")

    @staticmethod
    def _named(row: Mapping[str, Any]) -> tuple[str, ...]:
        return row["point"], row["metric"], row["subject"]

    @staticmethod
    def _both(row: Mapping[str, Any]) -> tuple[str, ...]:
        """Both medians, their ratio, and its interval."""
        interval = "-" if row["low"] is None else f"{human(row['low'])} to {human(row['high'])}"
        return _median(row, "a"), _median(row, "b"), human(row["ratio"]), interval

    def _word(self, differ: bool | None) -> str:
        return (WORDS_EXACT if self.exact else WORDS)[differ]


def _median(row: Mapping[str, Any], side: str) -> str:
    return f"{human(row[f'median_{side}'], row['unit'])} ({row[f'n_{side}']})"
