"""What the rounds of an A/B say: one sentence about its primary metric, and tables of all metrics."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from dumbbell import analysis
from dumbbell.analysis.blocks import Effect, effect, spread
from dumbbell.analysis.statistics import LEVEL, Floats, holm
from dumbbell.compare.design import MOST_ROUNDS, Design, detectable, level_of_each, needed_rounds
from dumbbell.compare.sides import UNEXPLAINED, Sides
from dumbbell.metrics.registry import PERCENTILES, of_name, title, worse
from dumbbell.metrics.values import measurable, values
from dumbbell.run.content import RunSet
from dumbbell.units import human
from dumbbell.words import columns

MAIL_COLUMNS = 78
PERCENT = 0.01
ALL = "all points"
MARKS = {True: "*", False: "", None: "?"}
NO_VERDICT = (
    "There is no verdict: this may be what differs. Set the hosts right and begin another A/B, or accept "
    "what is known by --accept NAME[,NAME...], names or globs. The runs are kept, and fab compare shows them."
)


@dataclass(frozen=True)
class Row:
    """A metric of a side against that of the first.

    If ``ratio``, all values are above 0: the effect is of their logarithms, and ``means`` are geometric;
    otherwise it is in the metric's unit. ``p`` is corrected; ``differ`` is None if so few rounds could not
    have shown it.
    """

    point: str
    metric: str
    subject: str
    unit: str
    side: str
    ratio: bool
    means: tuple[float, float]
    effect: Effect
    p: float
    differ: bool | None

    def change(self, value: float | None, *, signed: bool = True) -> str:
        """A difference for people: a share of the first, or in the metric's unit; `-` if it is not known."""
        if value is None:
            return "-"
        shown = math.expm1(value) if self.ratio else value
        digits = 2 if abs(shown) < PERCENT else 1
        told = f"{abs(shown):.{digits}%}" if self.ratio else human(abs(shown), self.unit)
        if not signed or told in {"0", "0.00%"}:
            return told
        return f"{'+' if shown > 0 else '-'}{told}"

    @property
    def interval(self) -> str:
        """The interval of the change."""
        if self.effect.low is None:
            return "-"
        return f"{self.change(self.effect.low)}..{self.change(self.effect.high)}"

    def lower_or_higher(self, value: float) -> str:
        """A difference in words."""
        return f"{self.change(value, signed=False).replace('%', ' %')} {'lower' if value < 0 else 'higher'}"


def primary(run_dir: Path, design: Design) -> list[float] | None:
    """The values of the primary metric at the points of a run that have it; None if it lacks one."""
    expected = 0
    for run in RunSet.open(run_dir):
        expected += design.of in measurable(run.point).get(design.metric, ())
    found = values(run_dir, PERCENTILES, design.metric).filter(
        pl.col("verdict").is_in(analysis.VALID), subject=design.of
    )
    return found["value"].to_list() if found.height == expected else None


def scaled(rounds: Sequence[Sequence[Sequence[float]]]) -> tuple[Floats, bool]:
    """Means of the values of each run, rounds x sides: of their logarithms if all of them are above 0."""
    ratio = all(value > 0 for sides in rounds for run in sides for value in run)
    return np.array([[np.mean(np.log(run) if ratio else run) for run in sides] for sides in rounds]), ratio


def least_difference(design: Design, table: Floats, *, ratio: bool) -> float:
    """The smallest difference that matters, on the scale of a table of :func:`scaled`."""
    metric = of_name(design.metric)
    floor = metric.least if metric else 0.0
    return math.log1p(design.least) if ratio else max(design.least * abs(float(table.mean())), floor)


@dataclass(frozen=True)
class Chosen:
    """How many rounds a pilot asks for, and what it says of that."""

    number: int
    told: str


def chosen(design: Design, pilot: Sequence[Sequence[Sequence[float]]]) -> Chosen:
    """The number of rounds that show the smallest difference that matters, from a pilot's values."""
    table, ratio = scaled(pilot)
    deviation, degrees = spread(table)
    least = least_difference(design, table, ratio=ratio)
    sides, most = len(design.sides), len(design.rounds)
    needed = needed_rounds(deviation, degrees, least, sides, design.pilot)
    metric = of_name(design.metric)

    def shown(value: float) -> str:
        return human(math.expm1(value), "share") if ratio else human(value, metric.unit if metric else "")

    told = f"In the pilot, differences within a round vary by {shown(deviation)} (standard deviation). "
    if needed <= most:
        return Chosen(
            needed,
            f"{told}{needed} rounds show a difference of {shown(least)} in about 80 % of all cases.",
        )
    visible = shown(detectable(deviation, degrees, most, sides, design.pilot))
    return Chosen(
        most,
        f"{told}{needed} rounds would show a difference of {shown(least)}; {most} are run, as --most allows, "
        f"and show one of {visible}.",
    )


class Answer(Sides):
    """Of the rounds of an A/B: a run of each side for each round, in the order of rounds."""

    def __init__(
        self, design: Design, runs: Mapping[str, Sequence[Path]], accept: Sequence[str] = ()
    ) -> None:
        super().__init__(runs, accept)
        self.design = design

    @cached_property
    def _values(self) -> list[pl.DataFrame]:
        """The values of each side, with the ``round`` of each."""
        return [
            pl.concat(
                values(run_dir, PERCENTILES).with_columns(round=pl.lit(i, pl.Int64))
                for i, run_dir in enumerate(side.dirs)
            )
            for side in self.sides
        ]

    @cached_property
    def primary(self) -> list[Row]:
        """The primary metric of each other side, over all points; p corrected for their number."""
        own = [
            found.filter(metric=self.design.metric, subject=self.design.of).with_columns(point=pl.lit(ALL))
            for found in self._values
        ]
        level = level_of_each(len(self.sides))
        rows = [row for side in range(1, len(own)) for row in self._rows(own[0], own[side], side, level)]
        several = len({point for found in self._values for point in found["point"]}) > 1
        return [
            replace(
                row,
                point=ALL if several else "-",
                p=min(1.0, row.p * len(rows)),
                differ=None if row.effect.low is None else row.p <= 1 - level,
            )
            for row in rows
        ]

    @cached_property
    def others(self) -> list[Row]:
        """All other metrics of each other side; p corrected for the number of these rows (Holm)."""
        rows = [
            row
            for side in range(1, len(self.sides))
            for row in self._rows(self._values[0], self._values[side], side, LEVEL)
            if (row.metric, row.subject) != (self.design.metric, self.design.of)
            or self.primary[0].point == ALL
        ]
        return [
            replace(row, p=p, differ=p < 1 - LEVEL if row.effect.least_p * len(rows) < 1 - LEVEL else None)
            for row, p in zip(rows, holm([row.p for row in rows]), strict=True)
        ]

    def _rows(self, first: pl.DataFrame, other: pl.DataFrame, side: int, level: float) -> Iterator[Row]:
        key = ["point", "metric", "subject", "unit"]
        each = [
            found.group_by([*key, "round"], maintain_order=True).agg(pl.col("value"))
            for found in (first, other)
        ]
        both = each[0].join(each[1], on=[*key, "round"], suffix="_b", maintain_order="left")
        for (point, metric, subject, unit), rows in both.group_by(key, maintain_order=True):
            rounds = rows.sort("round").select("round", "value", "value_b").rows()
            table, ratio = scaled([sides for _, *sides in rounds])
            pilot = sum(number < self.design.pilot for number, *_ in rounds)
            means = np.exp(table.mean(axis=0)) if ratio else table.mean(axis=0)
            found = effect((table[:, 1] - table[:, 0]).tolist(), pilot=pilot, level=level)
            yield Row(
                str(point),
                str(metric),
                str(subject),
                str(unit),
                self.sides[side].name,
                ratio,
                (float(means[0]), float(means[1])),
                found,
                found.p,
                None,
            )

    @cached_property
    def _table(self) -> Floats:
        """The primary metric, rounds x sides, on the scale of :func:`scaled`."""
        each = [
            found.filter(metric=self.design.metric, subject=self.design.of)
            .group_by("round", maintain_order=True)
            .agg(pl.col("value"))
            .sort("round")["value"]
            .to_list()
            for found in self._values
        ]
        return scaled(list(zip(*each, strict=True)))[0]

    @property
    def differences(self) -> dict[str, list[float]]:
        """Of each other side, the difference of the primary metric in each round: a share, or in its unit."""
        found = {}
        for i, row in enumerate(self.primary, 1):
            difference = self._table[:, i] - self._table[:, 0]
            found[row.side] = (np.expm1(difference) if row.ratio else difference).tolist()
        return found

    def notes(self) -> list[str]:
        """What :meth:`Sides.notes` has, and which sides have the same samples in virtual time."""
        first, *others = self.sides
        same = [side.name for side in others if first.digests and side.digests == first.digests]
        return [
            *super().notes(),
            *(f"all samples of {name} are the same as those of {first.name}, to the byte" for name in same),
        ]

    def sentences(self) -> list[str]:
        """The answer: a sentence for each other side."""
        return [self._sentence(row) for row in self.primary]

    def _sentence(self, row: Row) -> str:
        design, found, first = self.design, row.effect, next(iter(self.design.sides))
        what = f"{title(row.metric)} of {row.subject}"
        if found.low is None or found.high is None:
            return f"Too few rounds: {found.n} say nothing about {what} with {row.side} and {first}."
        how = f"{human(level_of_each(len(self.sides)), 'share')} interval, {found.n} rounds"
        least = least_difference(design, np.array(row.means), ratio=row.ratio)
        smallest = human(design.least, "share") if row.ratio else human(least, row.unit)
        small = -least < found.low and found.high < least
        if row.differ:
            good = "worse" if worse(row.metric, more=found.value > 0) else "better"
            ends = sorted((found.low, found.high), key=abs)
            near, far = (row.change(end, signed=False).replace("%", " %") for end in ends)
            return (
                f"With {row.side}, {what} is {row.lower_or_higher(found.value)} than with {first}, which is "
                f"{good} ({near} to {far}; {how})."
                + (f" Differences below {smallest} do not matter." if small else "")
            )
        low, high = (row.lower_or_higher(end) for end in (found.low, found.high))
        told = f"with {row.side}, {what} is between {low} and {high} than with {first} ({how})"
        if found.low == found.high:
            told = f"with {row.side}, {what} is the same as with {first} in all {found.n} rounds"
        if small:
            return f"No difference of {smallest} or more: {told}."
        return f"Not decided: {told}. {self._more(row, smallest)}"

    def _more(self, row: Row, smallest: str) -> str:
        """How to decide it."""
        deviation, degrees = spread(self._table)
        least = least_difference(self.design, self._table, ratio=row.ratio)
        needed = max(needed_rounds(deviation, degrees, least, len(self.sides), 0), row.effect.n + 1)
        if needed > MOST_ROUNDS:
            return (
                f"More than {MOST_ROUNDS} rounds would be needed to show a difference of {smallest}: choose "
                "a longer duration, or a larger --least."
            )
        seed = self.design.rounds[-1].seed + 1
        return (
            f"About {needed} rounds would decide it: begin another A/B with --rounds {needed} --seed {seed} "
            "--name NAME."
        )

    def no_verdict(self) -> str:
        """Unexplained differences of hosts, which take the place of an answer."""
        lines = [_wrapped(f"- {told}") for told in self.unexplained]
        return "\n".join([UNEXPLAINED, *lines, "", _wrapped(NO_VERDICT)])

    def mail(self) -> str:
        """The answer, tables for a mail, and what the sides differ in; or why there is no verdict."""
        if self.unexplained:
            return self.no_verdict()
        first = next(iter(self.design.sides))
        parts = ["\n".join(map(_wrapped, self.sentences()))]
        for own in self.primary:
            rows = [own, *(row for row in self.others if row.side == own.side)]
            lines = [("metric", "of", first, own.side, "change", "interval")]
            for row in rows:
                name = row.metric if row.point == "-" else f"{row.metric}, {row.point}"
                one, other = (human(mean, row.unit) for mean in row.means)
                change = f"{row.change(row.effect.value):>6}{MARKS[row.differ]}"
                lines.append((name, row.subject, one, other, change, row.interval))
            parts.append("\n".join(columns(lines, " ")))
        parts.append(_wrapped(self.how()))
        parts.append("\n".join(_wrapped(f"- {note}") for note in self.notes()))
        return "\n\n".join(filter(None, parts))

    def how(self) -> str:
        """How the numbers were had, in words."""
        pilot = f", {self.design.pilot} of them a pilot" if self.design.pilot else ""
        few = ", ? too few rounds to show it" if any(row.differ is None for row in self.others) else ""
        level, limit = human(level_of_each(len(self.sides)), "share"), human(1 - LEVEL, "share")
        sides = " for all sides together" if len(self.primary) > 1 else ""
        return (
            f"{self.design.scenario}, means of {len(self.sides[0].dirs)} rounds{pilot}, sides in random "
            f"order. The first line decides: {level} interval, permutation test by rounds at {limit}{sides}. "
            f"The others are exploratory: * differ at {limit} (Holm){few}; their intervals are of "
            f"{human(LEVEL, 'share')}, not corrected."
        )


def _wrapped(text: str) -> str:
    space = "\N{NO-BREAK SPACE}"
    lines = textwrap.fill(
        text.replace(" %", f"{space}%"),
        MAIL_COLUMNS,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(space, " ")
