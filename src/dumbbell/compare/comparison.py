"""Two sets of runs side by side, and the comparison as text for a terminal or a mail."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell import analysis
from dumbbell.compare.observed import Difference, Seen, by_hosts, differences, unexplained
from dumbbell.metrics.values import VALUES, conditions, digests, values
from dumbbell.plan.settings import settings
from dumbbell.run.content import Run, RunSet, located
from dumbbell.run.record import read_json
from dumbbell.units import human
from dumbbell.validity.settings import seen

WORDS = {True: "differ", False: "not shown to differ", None: "too few repetitions"}
UNEXPLAINED = "Settings of hosts that differ, and nothing explains it:"
NOTHING = "No point of a valid run is in both."
MARKS = {True: "*", False: "", None: "?"}
DIFFER = "differ at 5 % (Mann-Whitney, Holm)"
MAIL_COLUMNS = 78


@dataclass(frozen=True)
class _Side:
    """One of two sets of runs: its directories, and what came of each of their points."""

    name: str
    dirs: Sequence[Path]

    @cached_property
    def values(self) -> pl.DataFrame:
        return pl.concat([pl.DataFrame(schema=VALUES), *map(values, self.valid)])

    @cached_property
    def points(self) -> list[tuple[Path, dict[str, Any]]]:
        """Directory and verdict of each point that has one."""
        folders = RunSet.open(*self.dirs).dirs
        return [(folder, read_json(folder / "verdict.json") or {}) for folder in folders]

    @cached_property
    def valid(self) -> list[Path]:
        """Directories of the points whose numbers are results."""
        return [folder for folder, verdict in self.points if verdict.get("state") in analysis.VALID]

    @property
    def count(self) -> str:
        """How many of its runs are valid."""
        what = "runs" if len(self.points) == len(self.dirs) else "points"
        return f"{len(self.valid)} of {len(self.points)} {what} of {self.name}"

    @property
    def lacks(self) -> str | None:
        """Which is the first of its runs that is not valid, and why; None if all are."""
        if not self.points:
            return f"no run of {self.name} came to a verdict"
        for folder, verdict in self.points:
            if folder not in self.valid:
                return f"{self.count} are valid: {folder} {_fate(folder, verdict)}"
        return None

    def had(self, told: Callable[[Path], dict[Any, str]]) -> dict[Any, str]:
        """Conditions or settings of its valid points, by name."""
        found: dict[Any, set[str]] = {}
        for each in (told(folder) for folder in self.valid):
            for name, value in each.items():
                found.setdefault(name, set()).add(value)
        return {name: ", ".join(sorted(of)) for name, of in found.items()}

    @cached_property
    def seen(self) -> list[Seen]:
        """Settings of hosts at each valid point that kept them."""
        return [*seen(((Run.open(folder), self.name) for folder in self.valid), valid=True)]

    @cached_property
    def digests(self) -> dict[tuple[str, int], dict[str, set[str]]]:
        """Of each point and repetition that was run in virtual time all digests of each table."""
        found: dict[tuple[str, int], dict[str, set[str]]] = {}
        for key, told in (of for folder in self.valid for of in digests(folder).items()):
            for table, digest in told.items():
                found.setdefault(key, {}).setdefault(table, set()).add(digest)
        return found


class Comparison:
    """Of two sets of run directories. OSError or ValueError where the files of a valid run cannot be read."""

    def __init__(
        self,
        first: Iterable[Path | str],
        second: Iterable[Path | str],
        names: tuple[str, str] = ("the first", "the second"),
        accept: Sequence[str] = (),
    ) -> None:
        self._accept = accept
        self._sides = [
            _Side(name, [located(run_dir) for run_dir in dirs])
            for name, dirs in zip(names, (first, second), strict=True)
        ]

    @cached_property
    def exact(self) -> bool:
        """Whether both are of virtual time, where the same plan gives the same values again."""
        return all(side.digests for side in self._sides)

    @cached_property
    def rows(self) -> pl.DataFrame:
        """:func:`dumbbell.analysis.compare` of the two."""
        return analysis.compare(*(side.values for side in self._sides), exact=self.exact)

    @cached_property
    def _differences(self) -> list[Difference]:
        return differences([one for side in self._sides for one in side.seen])

    @cached_property
    def unexplained(self) -> list[str]:
        """Settings of hosts that differ within a side or between them, and nothing explains or accepts it."""
        return by_hosts(unexplained(self._differences, self._accept))

    def no_verdict(self) -> str:
        """What stands in place of a table for a mail while there are unexplained differences."""
        how = (
            "There is no verdict: this may be what differs. Set the hosts right and run again, or accept "
            "what is known by --accept NAME[,NAME...], names or globs. What was measured is kept, and "
            "fab compare shows it."
        )
        return "\n".join([*self._first(), "", _wrapped(how)])

    def _first(self) -> list[str]:
        """Lines that are told before anything else."""
        lines = [_wrapped(f"- {told}") for told in self.unexplained]
        return [UNEXPLAINED, *lines] if lines else []

    def _host_settings(self) -> Iterator[str]:
        """Settings of hosts that differ and are accepted, or that another kernel explains."""
        accepted = [one for one in self._differences if not one.because]
        for told in by_hosts(accepted):
            if told not in self.unexplained:
                yield f"accepted: {told}"
        kernels: dict[str, list[str]] = {}
        for one in self._differences:
            if one.because == ("kernel",):
                kernels.setdefault(one.name, []).append(one.host)
        names: dict[str, list[str]] = {}
        for name, hosts in kernels.items():
            names.setdefault(", ".join(hosts), []).append(name)
        for where, of in names.items():
            yield f"settings that come with the kernels, of {where}: {', '.join(of)}"
        for side in self._sides:
            older = len(side.valid) - len(side.seen)
            if older and any(other.seen for other in self._sides):
                yield f"{older} of {len(side.valid)} valid runs of {side.name} kept no settings of hosts"

    def notes(self) -> list[str]:
        """Which runs are not valid, what the two were asked for and had that is not the same, and points that
        only one has.
        """
        lacking = [lack for side in self._sides if (lack := side.lacks)]
        first, second = self._sides
        if not (first.valid and second.valid):
            return lacking
        only = analysis.only_one_has(first.values, second.values, (first.name, second.name))
        differ = (*self._settings(), *self._host_settings(), *self._conditions())
        return [*lacking, *differ, *only, *self._samples()]

    def _settings(self) -> Iterator[str]:
        """Settings that differ at points of both sides, each once for all hosts and points."""
        one, other = (side.had(_settings) for side in self._sides)
        both = [{point for point, *_ in found} for found in (one, other)]
        shared = both[0] & both[1]
        differ: dict[tuple[str, str], dict[str, list[str]]] = {}
        for point, subject, name in dict.fromkeys([*one, *other]):
            told = self._differ(one.get((point, subject, name)), other.get((point, subject, name)))
            if told and point in shared:
                differ.setdefault((name, told), {}).setdefault(subject, []).append(point)
        for (name, told), subjects in differ.items():
            points = list(dict.fromkeys(point for of in subjects.values() for point in of))
            where = "" if len(points) == len(shared) else f", at {', '.join(points)}"
            yield f"{name} of {', '.join(subjects)}{where}: {told}"

    def _conditions(self) -> Iterator[str]:
        one, other = (side.had(conditions) for side in self._sides)
        for name in dict.fromkeys([*one, *other]):
            if told := self._differ(one.get(name), other.get(name)):
                yield f"{name}: {told}"

    def _differ(self, one: str | None, other: str | None) -> str:
        first, second = self._sides
        return "" if one == other else f"{one or 'none'} in {first.name}, {other or 'none'} in {second.name}"

    def _samples(self) -> Iterator[str]:
        """Of runs in virtual time, which tables of samples are not the same to the last byte."""
        first, second = (side.digests for side in self._sides)
        for (point, repetition), told in first.items():
            if other := second.get((point, repetition)):
                changed = [name for name in told if told[name] != other.get(name)]
                what = f"samples that differ: {', '.join(changed)}" if changed else "all samples are the same"
                yield f"{point}, repetition {repetition}, in virtual time: {what}"

    def head(self) -> tuple[str, ...]:
        """Titles of the columns of :meth:`cells`."""
        one, other = (side.name.removeprefix("the ") for side in self._sides)
        ratio = f"{other} / {one}"
        return ("point", "metric", "of", one, other, ratio, "95 % interval", "detectable", "p", "")

    def text(self) -> str:
        """What is not explained, a table for a terminal, and the notes."""
        first = [*self._first(), ""] if self.unexplained else []
        if self.rows.is_empty():
            return "\n".join([*first, NOTHING, *self.notes()])
        lines = [self.head(), *map(self.cells, self.rows.iter_rows(named=True))]
        return "\n".join([*first, *_columns(lines, "  "), "", *self.notes()]).rstrip()

    def mail(self) -> str:
        """A table for a mail, of 78 columns if one point is compared; and what it was had with."""
        notes = [_wrapped(note) for note in self.notes()]
        if self.rows.is_empty():
            return "\n".join([NOTHING, *notes])
        lines = [("metric", "of", *(side.name for side in self._sides), "change", "95 % CI")]
        for row in self.rows.iter_rows(named=True):
            change, low, high = (_percent(row[name]) for name in ("ratio", "low", "high"))
            medians = [human(row[f"median_{side}"], row["unit"]) for side in "ab"]
            interval = f"{low[:-1]}..{high}" if low else "-"
            name = row["metric"] if row["point"] == "-" else f"{row['metric']}, {row['point']}"
            lines.append((name, row["subject"], *medians, f"{change:>6}{MARKS[row['differ']]}", interval))
        valid = " and ".join(side.count for side in self._sides)
        differ = "differ, in virtual time never by chance" if self.exact else DIFFER
        few = f", ? {self._word(None)}" if None in self.rows["differ"] else ""
        how = f"Medians of what is valid: {valid}, in turn. * {differ}{few}; others are not shown to differ."
        return "\n".join([*_columns(lines, " "), "", _wrapped(how), *notes])

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


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio - 1:+.1%}"


def _fate(folder: Path, verdict: dict[str, Any]) -> str:
    if not verdict:
        return "has no verdict" if (folder / "plan.json").exists() else "is no directory of a run"
    reason = next(iter(verdict.get("reasons") or []), "no reason was written down")
    return f"is {verdict.get('state')}: {reason}"


def _columns(lines: Sequence[Sequence[str]], between: str) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [between.join(map(str.ljust, line, widths)).rstrip() for line in lines]


def _wrapped(text: str) -> str:
    return textwrap.fill(
        text, MAIL_COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _settings(point_dir: Path) -> dict[tuple[str, str, str], str]:
    point = Run.open(point_dir).point
    return {(point.label or "-", *of): value for of, value in settings(point).items()}
