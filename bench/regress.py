"""Simulate histories of nights, and count false alarms, changes found and how late: bench/regress.json."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np

from dumbbell.nightly.changes import AGAIN, LEAST_NIGHTS, confirmed, fresh
from dumbbell.suite import Suite
from tools.bench import Row, publish

TARGET = Path("bench/regress.json")
NIGHTS, SHIFT_AT, SERIES = 40, 20, 200
NOISES, SHIFTS = (0.005, 0.01, 0.02), (0.0, 0.02, 0.05)
OUTLIERS, OUTLIER_SIZE = 0.03, 5  # share of nights, and how many times the noise they are off
LEAST_EFFECT = Suite.model_fields["least_change"].default


def night(rng: np.random.Generator, level: float, noise: float, n: int = 1) -> np.ndarray:
    """Values of some measurements at a level."""
    values = level * (1 + noise * rng.standard_normal(n))
    off = rng.random(n) < OUTLIERS
    return np.where(off, values * (1 + OUTLIER_SIZE * noise * rng.choice((-1, 1), n)), values)


def alarm_at(rng: np.random.Generator, noise: float, shift: float) -> int | None:
    """The night of the first confirmed alarm of a series, if there is one."""
    values: list[float] = []
    for i in range(NIGHTS):
        level = 1 - shift * (i >= SHIFT_AT)
        values.append(float(night(rng, level, noise)[0]))
        if i + 1 < LEAST_NIGHTS:
            continue
        change = fresh(values, LEAST_EFFECT)
        if change and confirmed(values, change, night(rng, level, noise, AGAIN), LEAST_EFFECT):
            return i
    return None


def main() -> int:
    """Entry point; returns the exit status."""
    rng = np.random.default_rng(1)
    rows = []
    for noise, shift in product(NOISES, SHIFTS):
        alarms = [alarm_at(rng, noise, shift) for _ in range(SERIES)]
        name = f"noise {noise:.1%}, shift {shift:.0%}"
        false = sum(at is not None and (shift == 0 or at < SHIFT_AT) for at in alarms) / SERIES
        rows.append(Row(f"{name}: series with a false alarm", 100 * false, "%", SERIES, target="<= 2"))
        if shift:
            late = [at - SHIFT_AT + 1 for at in alarms if at is not None and at >= SHIFT_AT]
            rows.append(Row(f"{name}: found", 100 * len(late) / SERIES, "%", SERIES))
            if late:
                rows.append(Row.median(f"{name}: nights until then", late, "nights"))
    publish(rows, TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
