"""Two sets of runs side by side: as text for a terminal, and as parts of a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from functools import cached_property
from html import escape
from pathlib import Path

import polars as pl

from dumbbell import analysis
from dumbbell.report import Missing, figures, html, part, show
from dumbbell.store.run import located
from dumbbell.store.values import conditions, digests, values
from dumbbell.units import human

HEAD = ("point", "metric", "of", "first", "second", "second / first", "95 % interval", "detectable", "p", "")
WORDS = {True: "differ", False: "not shown to differ", None: "too few repetitions"}
HOW = (
    "Medians, and in brackets of how many valid repetitions. The interval is by bootstrap, and of few "
    "repetitions too narrow. Detectable is the least change that the spread of the first lets so many "
    "repetitions show. p is that of Mann and Whitney's test, corrected for the number of rows (Holm); two "
    "sets differ where it is below 5 %, and in virtual time, which repeats itself, where any value does."
)


class Comparison:
    """Of two sets of run directories. OSError or ValueError where one holds no run with results."""

    def __init__(self, first: Iterable[Path | str], second: Iterable[Path | str]) -> None:
        self._dirs = [[located(run_dir) for run_dir in side] for side in (first, second)]
        self._values = [pl.concat([values(run_dir) for run_dir in side]) for side in self._dirs]
        self._digests = [
            {key: told for run_dir in side for key, told in digests(run_dir).items()} for side in self._dirs
        ]

    @cached_property
    def rows(self) -> pl.DataFrame:
        """:func:`dumbbell.analysis.compare` of the two."""
        return analysis.compare(*self._values, exact=all(self._digests))

    def notes(self) -> list[str]:
        """What the two were had with that is not the same, and points that only one has."""
        sides = [[conditions(run_dir) for run_dir in side] for side in self._dirs]
        names = dict.fromkeys(name for side in sides for found in side for name in found)
        said = []
        for name in names:
            one, other = (", ".join(sorted({found.get(name, "none") for found in side})) for side in sides)
            if one != other:
                said.append(f"{name}: {one} in the first, {other} in the second")
        return [*said, *analysis.only_one_has(*self._values), *self._samples()]

    def _samples(self) -> Iterator[str]:
        """Of runs in virtual time, which tables of samples are not the same to the last byte."""
        first, second = self._digests
        for (point, repetition), told in first.items():
            if other := second.get((point, repetition)):
                changed = [name for name in told if told[name] != other.get(name)]
                what = f"samples that differ: {', '.join(changed)}" if changed else "all samples are the same"
                yield f"{point}, repetition {repetition}, in virtual time: {what}"

    def text(self) -> str:
        """A table for a terminal, and the notes."""
        if self.rows.is_empty():
            return "\n".join(["No point of a valid run is in both.", *self.notes()])
        lines = [HEAD, *map(_cells, self.rows.iter_rows(named=True))]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*table, "", *self.notes()]).rstrip()

    def mail(self, first: str, second: str) -> str:
        """A table for a mail: no more than 78 columns if one point is compared; and what it was had with."""
        lines = [("metric", "of", first, second, "change", "95 % CI")]
        for row in self.rows.iter_rows(named=True):
            change, low, high = (_percent(row[name]) for name in ("ratio", "low", "high"))
            mark = "*" if row["differ"] else " "
            medians = [human(row[f"median_{side}"], row["unit"]) for side in "ab"]
            interval = f"{low[:-1]}..{high}" if low else "-"
            name = row["metric"] if row["point"] == "-" else f"{row['metric']}, {row['point']}"
            lines.append((name, row["subject"], *medians, f"{change}{mark}", interval))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [" ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        runs = f"{len(self._dirs[0])} runs of {first} and {len(self._dirs[1])} of {second}"
        how = f"Medians of {runs}, in turn. * differ at 5 % (Mann-Whitney, Holm)."
        return "\n".join([*table, "", *textwrap.wrap(how, 78), *self.notes()])

    @part
    def table(self) -> str:
        """All metrics of both, and what differs otherwise."""
        if self.rows.is_empty():
            raise Missing(f"No point of a valid run is in both. {'; '.join(self.notes())}")
        body = (html.row(map(escape, _cells(row))) for row in self.rows.iter_rows(named=True))
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes())
        return f'{html.table(HEAD, body)}<p class="note">{HOW}</p><ul>{notes}</ul>'

    @part
    def figure(self) -> str:
        """The ratio of each metric, with its interval."""
        shown = self.rows.filter(pl.col("ratio").is_not_null())
        if shown.is_empty():
            raise Missing("There is no metric of which a ratio could be drawn.")
        names = [" ".join((r["metric"], r["subject"], r["point"])) for r in shown.iter_rows(named=True)]
        return show(
            figures.intervals(names, shown, title="second / first"),
            "Ratio of the medians, with its 95 % interval (bootstrap) of two repetitions and more.",
        )


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio - 1:+.1%}"


def _cells(row: dict[str, object]) -> tuple[str, ...]:
    unit, low = str(row["unit"]), row["low"]
    return (
        str(row["point"]),
        str(row["metric"]),
        str(row["subject"]),
        f"{human(row['median_a'], unit)} ({row['n_a']})",
        f"{human(row['median_b'], unit)} ({row['n_b']})",
        human(row["ratio"]),
        "-" if low is None else f"{human(low)} to {human(row['high'])}",
        human(row["detectable"], "share"),
        human(row["p"]),
        WORDS[row["differ"]],  # type: ignore[index]
    )
