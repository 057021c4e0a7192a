"""Simulate histories of nights, and count false alarms, changes found and how late: bench/regress.json.

A value of a night has noise of its own, and noise that all values of that night share. Each method gets the
same nights: today's, with an A/B where a kernel changes or by the nights alone, and the former one, which
confirmed a change by measuring the point again in the same night. In virtual time a seed's value is exact,
and another kernel draws it anew.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import scipy
from otava.analysis import compute_change_points

from dumbbell.nightly.changes import (
    FRESH,
    LEAST_NIGHTS,
    PAIRS,
    WINDOW,
    Change,
    Least,
    Pairs,
    by_pairs,
    judged,
)
from dumbbell.suite import Suite
from tools.bench import Row, publish

TARGET = Path("bench/regress.json")
NIGHTS, SHIFT_AT, SERIES = 40, 20, 500
SHIFTS = (0.0, 0.02, 0.05)
# Noise that a night gives to all of its values, and that each value has beside it.
CELLS = [*((0.0, own) for own in (0.005, 0.01, 0.02)), *product((0.005, 0.01, 0.02), (0.002, 0.005))]
SEEDS, SEED_NOISES, KERNELS = (
    (8, 16),
    (0.005, 0.01, 0.02),
    (10, 20, 30),
)  # in virtual time; nights of new kernels
OUTLIERS, OUTLIER_SIZE = 0.03, 5  # share of values, and how many times the noise they are off
LEAST = Least(Suite.model_fields["least_change"].default)
MOST_NIGHTS_OF_PAIRS = 3
FORMER_P = (0.005, 0.003)  # of a candidate, and of the values that were measured again
MOST_FALSE = "<= 2"

Found = Callable[["History", int], bool]


def noise(rng: np.random.Generator, sd: float, n: int) -> np.ndarray:
    """Relative noise with outliers."""
    off = OUTLIER_SIZE * (rng.random(n) < OUTLIERS) * rng.choice((-1, 1), n)
    return np.asarray(sd * (rng.standard_normal(n) + off))


class History:
    """The nights of a series: values, and more of them that are measured in one of its nights."""

    def __init__(self, rng: np.random.Generator, night: float, own: float, shift: float) -> None:
        self._rng, self._own = rng, own
        self._level = (1 - shift * (np.arange(NIGHTS) >= SHIFT_AT)) * np.ones(NIGHTS)
        self._night = 1 + noise(rng, night, NIGHTS)
        self.values = [float(self.more(i, 1)[0]) for i in range(NIGHTS)]
        self.pairs: list[tuple[float, float]] = []

    def more(self, night: int, n: int, kernel: int | None = None) -> np.ndarray:
        """Values that are measured in a night, by default with the kernel of that night."""
        level = self._level[night if kernel is None else kernel]
        return np.asarray(level * self._night[night] * (1 + noise(self._rng, self._own, n)))

    def more_pairs(self, night: int) -> Pairs:
        """All pairs of an A/B up to a night."""
        if len(self.pairs) < MOST_NIGHTS_OF_PAIRS * PAIRS:
            sides = (self.more(night, PAIRS, SHIFT_AT - 1), self.more(night, PAIRS))
            self.pairs += zip(*(side.tolist() for side in sides), strict=True)
        return self.pairs


def former(history: History, night: int) -> bool:
    """The former method: a change point, and eight more values in the same night."""
    values = history.values[: night + 1]
    found, _ = compute_change_points(
        values, window_len=WINDOW, max_pvalue=FORMER_P[0], min_magnitude=LEAST.relative
    )
    if not found or found[-1].index < len(values) - FRESH:
        return False
    starts = [0, *(point.index for point in found)]
    old, new = (values[a:b] for a, b in zip(starts[-2:], (starts[-1], len(values)), strict=True))
    change = statistics.median(new) - statistics.median(old)
    if not LEAST.reached(statistics.median(old), statistics.median(new)):
        return False
    again = history.more(night, 8)
    earlier = values[: starts[-1]]
    before, now = statistics.median(earlier), float(np.median(again))
    if change > 0 or now >= before or not LEAST.half.reached(before, now):
        return False
    return bool(scipy.stats.mannwhitneyu(earlier, again, alternative="two-sided").pvalue < FORMER_P[1])


def with_pairs(history: History, night: int) -> bool:
    """Today's method where the former kernel can be had."""
    return today(history, night, lambda _: history.more_pairs(night))


def by_nights_alone(history: History, night: int) -> bool:
    """Today's method where it cannot."""
    return today(history, night, lambda _: [])


def today(history: History, night: int, pairs: Callable[[Change], Pairs]) -> bool:
    """Whether today's method has found a change for the worse, a new kernel being there since SHIFT_AT."""
    values = history.values[: night + 1]
    tested = [SHIFT_AT] if night >= SHIFT_AT else []
    change, evidence = judged(values, LEAST, tested, pairs)
    return change is not None and evidence is not None and not change.up


def first(history: History, found: Found) -> int | None:
    """The night of the first alarm of a series, if there is one."""
    return next((i for i in range(LEAST_NIGHTS - 1, NIGHTS) if found(history, i)), None)


def virtual(rng: np.random.Generator, seeds: int, spread: float, shift: float, *, paired: bool) -> int | None:
    """The night of the first alarm for the worse in virtual time.

    The former method looked at the median of a night alone, which was the same when measured again.
    """
    values = 1 + noise(rng, spread, seeds)
    for night in KERNELS:
        anew = (1 - shift * (night >= SHIFT_AT)) * (1 + noise(rng, spread, seeds))
        before, after = np.median(values), np.median(anew)
        worse = after < before and LEAST.reached(before, after)
        pairs = list(zip(values.tolist(), anew.tolist(), strict=True))
        if worse and (not paired or by_pairs(pairs, LEAST, up=False, told="")):
            return night
        values = anew
    return None


def rows(name: str, shift: float, alarms: list[int | None]) -> Iterator[Row]:
    """The rows of a method in a cell."""
    false = sum(at is not None and (shift == 0 or at < SHIFT_AT) for at in alarms)
    target = None if name.endswith("former") else MOST_FALSE
    yield Row(
        f"{name}: series with a false alarm", 100 * false / len(alarms), "%", len(alarms), target=target
    )
    if shift:
        late = [at - SHIFT_AT + 1 for at in alarms if at is not None and at >= SHIFT_AT]
        yield Row(f"{name}: found", 100 * len(late) / len(alarms), "%", len(alarms))
        if late:
            yield Row.median(f"{name}: nights until then", late, "nights")


def main() -> int:
    """Entry point; returns the exit status."""
    told: list[Row] = []
    methods = {"former": former, "A/B": with_pairs, "nights": by_nights_alone}
    for (night, own), shift, (name, found) in product(CELLS, SHIFTS, methods.items()):
        rngs = [np.random.default_rng([1, i]) for i in range(SERIES)]
        alarms = [first(History(rng, night, own, shift), found) for rng in rngs]
        cell = f"night {night:.1%}, value {own:.1%}, shift {shift:.0%}, {name}"
        told += rows(cell, shift, alarms)
        print(cell, *(f"{row.value:.1f}" for row in told[-3:]), file=sys.stderr, flush=True)
    for seeds, spread, shift, paired in product(SEEDS, SEED_NOISES, SHIFTS, (False, True)):
        rng = np.random.default_rng(1)
        alarms = [virtual(rng, seeds, spread, shift, paired=paired) for _ in range(SERIES)]
        name = "paired" if paired else "former"
        told += rows(
            f"virtual, {seeds} seeds that differ by {spread:.1%}, shift {shift:.0%}, {name}", shift, alarms
        )
    publish(told, TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
