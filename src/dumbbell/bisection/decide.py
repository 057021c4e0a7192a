"""Is a commit's metric that of the good or that of the bad end? By as few seeds as that needs.

Values are compared as logarithms, so by their ratio, if all are above 0; otherwise as they are. Commits are
taken to spread alike: their spread is estimated from all of them together, so that two seeds each can do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from dumbbell.analysis.statistics import LEVEL, Interval

Word = Literal["good", "bad"]
Values = Sequence[float]


@dataclass(frozen=True)
class Effect:
    """How a commit's mean relates to that of the good end.

    ``is_ratio`` says whether ``interval``, at 95 %, is of the ratio of (geometric) means or of the difference
    of means. ``error`` is the probability that the answer is wrong: which of the ends it is like, or, of the
    bad end, that it differs from the good one in this direction.
    """

    interval: Interval
    is_ratio: bool
    error: float


def ends(good: Values, bad: Values) -> Effect:
    """How far the two ends differ; at least two values each."""
    return _effect((good, bad), np.array([-1.0, 1.0]), np.array([-1.0, 1.0]))


def step(good: Values, bad: Values, candidate: Values) -> tuple[Word, Effect]:
    """Which end a commit is like, by its place relative to the middle between them, and how far it is off."""
    middle = np.array([-0.5, -0.5, 1.0])
    sides, _ = _scaled((good, bad, candidate))
    means = [float(np.mean(side)) for side in sides]
    nearer_bad = abs(means[2] - means[1]) < abs(means[2] - means[0])
    return ("bad" if nearer_bad else "good"), _effect(
        (good, bad, candidate), middle, np.array([-1.0, 0, 1.0])
    )


def looks(least: int, most: int) -> Iterator[int]:
    """Numbers of seeds after which to look: doubled until there are ``most``."""
    seeds = least
    while seeds < most:
        yield seeds
        seeds *= 2
    yield most


def _scaled(sides: Sequence[Values]) -> tuple[list[np.ndarray], bool]:
    values = [np.asarray(side, float) for side in sides]
    if is_ratio := all((side > 0).all() for side in values):
        values = [np.log(side) for side in values]
    return values, is_ratio


def _effect(sides: Sequence[Values], tested: np.ndarray, shown: np.ndarray) -> Effect:
    """Whether the combination ``tested`` of means is 0, and the interval of the combination ``shown``."""
    values, is_ratio = _scaled(sides)
    n = np.array([side.size for side in values])
    degrees = int(n.sum() - n.size)
    spread = math.sqrt(sum(float(((side - side.mean()) ** 2).sum()) for side in values) / degrees)
    means = np.array([side.mean() for side in values])

    def combined(weights: np.ndarray) -> tuple[float, float]:
        return float(weights @ means), spread * math.sqrt(float((weights**2 / n).sum()))

    off, uncertain = combined(tested)
    without_spread = 0.0 if off else 0.5  # then any difference is one
    error = float(scipy.stats.t.sf(abs(off) / uncertain, degrees)) if uncertain else without_spread
    size, uncertain = combined(shown)
    half = float(scipy.stats.t.ppf((1 + LEVEL) / 2, degrees)) * uncertain
    bounds = (size, size - half, size + half)
    return Effect(Interval(*(map(math.exp, bounds) if is_ratio else bounds)), is_ratio, error)
