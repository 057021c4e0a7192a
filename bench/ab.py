"""Simulate A/B experiments; count intervals that have the true ratio, and false alarms: bench/ab.json.

Each round has a level of its own, which both sides share, and each value has noise: normal, with outliers, or
skewed. With a pilot its spread decides the number of rounds, as in ``fab ab``.
"""

from __future__ import annotations

import math
import sys
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dumbbell.analysis.blocks import effect, spread
from dumbbell.compare.design import PILOT, level_of_each, needed_rounds
from dumbbell.experiment import LEAST, MOST
from tools.bench import Row, publish

TARGET = Path("bench/ab.json")
EXPERIMENTS = 2000
NOISES = ("normal", "outliers", "skewed")
SPREADS, CHANGES = (0.002, 0.005, 0.01, 0.02), (0.0, -0.02)
ROUNDS = 8  # without a pilot
OUTLIERS, OUTLIER_SIZE = 0.05, 5  # share of values, and how many times the noise they are off


class Counted(NamedTuple):
    """Shares of experiments whose interval has the true ratio, and which differ; mean number of rounds."""

    covered: float
    differ: float
    rounds: float


def drawn(rng: np.random.Generator, noise: str, shape: tuple[int, int]) -> np.ndarray:
    """Noise of standard deviation 1; outliers come on top."""
    if noise == "skewed":
        return np.asarray(rng.exponential(size=shape) - 1)
    off = OUTLIER_SIZE * (rng.random(shape) < OUTLIERS) * rng.choice((-1, 1), shape)
    return np.asarray(rng.standard_normal(shape) + (off if noise == "outliers" else 0))


def experiments(
    number: int, *, noise: str, by: float, change: float, piloted: bool, sides: int = 2
) -> Counted:
    """So many experiments with values that vary by ``by``; the second side is another by ``change``."""
    covered = differ = total = 0
    true, level = math.log1p(change), level_of_each(sides)
    for i in range(number):
        rng = np.random.default_rng([1, i])
        values = 0.05 * rng.standard_normal((MOST, 1)) + np.log1p(by * drawn(rng, noise, (MOST, sides)))
        values[:, 1] += true
        rounds = _needed(values[:PILOT], sides) if piloted else ROUNDS
        found = [
            effect(
                (values[:rounds, side] - values[:rounds, 0]).tolist(),
                pilot=PILOT if piloted else 0,
                level=level,
            )
            for side in range(1, sides)
        ]
        truths = [true, *[0.0] * (sides - 2)]
        covered += all(
            one.low is not None and one.high is not None and one.low <= truth <= one.high
            for one, truth in zip(found, truths, strict=True)
        )
        differ += any(one.p <= 1 - level for one in found)
        total += rounds
    return Counted(covered / number, differ / number, total / number)


def _needed(pilot: np.ndarray, sides: int) -> int:
    deviation, degrees = spread(pilot)
    return min(MOST, needed_rounds(deviation, degrees, math.log1p(LEAST), sides, PILOT))


def main() -> int:
    """Entry point; returns the exit status."""
    told: list[Row] = []
    for piloted, noise, by, change, sides in product((False, True), NOISES, SPREADS, CHANGES, (2, 4)):
        found = experiments(EXPERIMENTS, noise=noise, by=by, change=change, piloted=piloted, sides=sides)
        how = "pilot" if piloted else f"{ROUNDS} rounds"
        cell = f"{sides} sides, {noise}, {by:.1%}, change {change:.0%}, {how}"
        told.append(Row(f"{cell}: all intervals have the true ratio", 100 * found.covered, "%", EXPERIMENTS))
        name, target = ("detected", None) if change else ("false alarms", "<= 6")
        told.append(Row(f"{cell}: {name}", 100 * found.differ, "%", EXPERIMENTS, target=target))
        told.append(Row(f"{cell}: rounds", found.rounds, "rounds", EXPERIMENTS))
        print(cell, found, file=sys.stderr, flush=True)
    publish(told, TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
