"""Values of several sides that were measured in blocks: the effect of a side, its test and its interval.

A block (a round of an A/B, a seed of virtual time) has one value of each side. What a block does to all of
its values cancels in their differences. If two sides do not differ, their values in a block could as well be
exchanged, which changes the sign of the difference (R. A. Fisher, 1935): the test counts the signs that give
a sum as far from 0. The sum is as far if the differences that keep their signs have a mean of the other
sign, so the test counts the means of all subsets of differences that are below 0, or above. Its interval has
those true differences that it does not refute: its ends are order statistics of these means (J. A. Hartigan,
"Using Subsample Values as Typical Values", 1969). So it has its level at any number of blocks, for any
distribution that is symmetric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dumbbell.analysis.statistics import LEVEL, Floats

COUNTED_OUT = 14  # units of which all 2**14 choices of signs are looked at; of more, so many that are drawn
ROUNDING = 1e-12  # of a mean that is 0, as a share of the largest difference


@dataclass(frozen=True)
class Effect:
    """The mean of differences, its interval, and p of the two-sided test against 0.

    ``low`` and ``high`` are None if so few blocks have no interval of the level that was asked for.
    ``least_p`` is the smallest p that so many blocks can have, whatever their values.
    """

    n: int
    value: float
    low: float | None
    high: float | None
    p: float
    least_p: float


def effect(differences: Sequence[float], *, pilot: int = 0, level: float = LEVEL) -> Effect:
    """The effect that differences show, one of each block; ValueError of none.

    The first ``pilot`` blocks have decided by their spread how many there are. The same signs of all of them
    leave that spread as it is, so they are changed together: then the decision does not affect the test.
    """
    sums, sizes = _units(np.asarray(differences, float), pilot)
    totals = _subsets(sums.size) @ np.stack((sums, sizes), axis=1)
    means = np.sort(totals[:, 0] / totals[:, 1])
    means[np.abs(means) < ROUNDING * np.abs(sums).max()] = 0
    outside = int((1 - level) / 2 * (means.size + 1))
    return Effect(
        n=len(differences),
        value=float(sums.sum() / sizes.sum()),
        low=float(means[outside - 1]) if outside else None,
        high=float(means[-outside]) if outside else None,
        p=min(1.0, 2 * (1 + min((means <= 0).sum(), (means >= 0).sum())) / (means.size + 1)),
        least_p=least_p(sums.size),
    )


def least_p(units: int) -> float:
    """The smallest p of the test of so many differences: all of them have one sign."""
    return 2.0 ** (1 - units)


def spread(values: ArrayLike) -> tuple[float, int]:
    """Standard deviation of a difference within a block, and its degrees of freedom.

    ``values`` are blocks x sides, at least two of each. It is that of the residuals of blocks and sides, so
    it is the same if sides are exchanged in all blocks, or if one of them is larger by a constant.
    """
    table = np.asarray(values, float)
    blocks, sides = table.shape
    residuals = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    degrees = (blocks - 1) * (sides - 1)
    return float(np.sqrt(2 * (residuals**2).sum() / degrees)), degrees


def _units(differences: Floats, pilot: int) -> tuple[Floats, Floats]:
    """Sums and sizes of what changes its sign at once: the pilot, and each later block."""
    if not differences.size:
        raise ValueError("there is no block")
    first, later = differences[:pilot], differences[pilot:]
    if first.size:
        return np.append(first.sum(), later), np.append(float(first.size), np.ones_like(later))
    return later, np.ones_like(later)


@lru_cache(maxsize=16)
def _subsets(units: int) -> Floats:
    """All subsets but the empty one, as rows of 0 and 1; of many units so many that are drawn."""
    if units <= COUNTED_OUT:
        return (np.arange(1, 2**units)[:, None] >> np.arange(units) & 1).astype(float)
    drawn = np.random.default_rng(1).integers(2, size=(2**COUNTED_OUT, units), dtype=np.uint8)
    return drawn[drawn.any(axis=1)].astype(float)
