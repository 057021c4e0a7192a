"""Simulate A/B experiments; count intervals that have the true ratio, false alarms, and what is detected.

The result is in bench/ab.json. Each round has a level of its own, which its sides share, and each value has
noise: normal, with outliers, or skewed. With a pilot its spread decides the number of rounds, as in
``fab ab``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dumbbell.analysis.blocks import Effect, effect, spread
from dumbbell.compare.design import PILOT, level_of_each, needed_rounds
from dumbbell.experiment import LEAST
from tools.bench import Row, publish

TARGET = Path("bench/ab.json")
EXPERIMENTS = 2000
NOISES = ("normal", "outliers", "skewed")
SPREADS = (0.005, 0.01, 0.02)  # of a value, as a share
SIDES = (2, 4)
ROUNDS, MOST = 8, 200  # without a pilot; at most with one
OUTLIERS, OUTLIER_SIZE = 0.05, 5  # share of values, and how many times the noise they are off


class Counted(NamedTuple):
    """Shares of experiments; and the mean number of rounds.

    ``covered``: all intervals have the true ratio, 1. ``alarms``: a side differs. ``detected``: the second
    side is found to differ if all of its values are lower by the smallest difference that matters.
    """

    covered: float
    alarms: float
    detected: float
    rounds: float


def drawn(rng: np.random.Generator, noise: str, shape: tuple[int, int]) -> np.ndarray:
    """Noise of standard deviation 1; outliers come on top."""
    if noise == "skewed":
        return np.asarray(rng.exponential(size=shape) - 1)
    off = OUTLIER_SIZE * (rng.random(shape) < OUTLIERS) * rng.choice((-1, 1), shape)
    return np.asarray(rng.standard_normal(shape) + (off if noise == "outliers" else 0))


def experiments(number: int, *, noise: str, by: float, piloted: bool, sides: int = 2) -> Counted:
    """So many experiments with values that vary by ``by``."""
    counts = np.zeros(4)
    level = level_of_each(sides)
    for i in range(number):
        rng = np.random.default_rng([1, i])
        values = 0.05 * rng.standard_normal((MOST, 1)) + np.log1p(by * drawn(rng, noise, (MOST, sides)))
        rounds, pilot = (_needed(values[:PILOT], sides), PILOT) if piloted else (ROUNDS, 0)
        found = [
            effect((values[:rounds, side] - values[:rounds, 0]).tolist(), pilot=pilot, level=level)
            for side in range(1, sides)
        ]
        # An interval moves with the values: that of lower ones has 0 if this one has as much.
        counts += (
            all(_has(one, 0) for one in found),
            any(one.p <= 1 - level for one in found),
            not _has(found[0], -math.log1p(-LEAST)),
            rounds,
        )
    return Counted(*map(float, counts / number))


def _has(found: Effect, value: float) -> bool:
    return found.low is not None and found.high is not None and found.low <= value <= found.high


def _needed(pilot: np.ndarray, sides: int) -> int:
    deviation, degrees = spread(pilot)
    return min(MOST, needed_rounds(deviation, degrees, math.log1p(LEAST), sides, PILOT))


def simulated() -> Iterator[Row]:
    """The rows of bench/ab.json."""
    without = product((False,), NOISES, SPREADS[:1], SIDES)  # another spread would be the same
    for piloted, noise, by, sides in (*without, *product((True,), NOISES, SPREADS, SIDES)):
        found = experiments(EXPERIMENTS, noise=noise, by=by, piloted=piloted, sides=sides)
        how = "pilot" if piloted else f"{ROUNDS} rounds"
        cell = f"{sides} sides, {noise}, {by:.1%}, {how}"
        print(cell, found, file=sys.stderr, flush=True)
        yield Row(f"{cell}: covered", 100 * found.covered, "%", EXPERIMENTS, target=">= 94")
        yield Row(f"{cell}: false alarms", 100 * found.alarms, "%", EXPERIMENTS, target="<= 6")
        if piloted:
            yield Row(f"{cell}: detected", 100 * found.detected, "%", EXPERIMENTS, target=">= 80")
            yield Row(f"{cell}: rounds", found.rounds, "rounds", EXPERIMENTS)


def main() -> int:
    """Entry point; returns the exit status."""
    publish([*simulated()], TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
