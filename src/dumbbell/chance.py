"""How far a measured value may be from the true one by chance."""

from __future__ import annotations

import math
from statistics import NormalDist

RARELY = 10_000  # a check of a value that varies fails one good run in so many


def median_error(deviation: float, count: int) -> float:
    """How far the median of ``count`` values may be from the true one, in the unit of their deviation.

    For a normal distribution; the median of a uniform one of that half width varies less. Infinite without
    values.
    """
    if not count:
        return math.inf
    return NormalDist().inv_cdf(1 - 0.5 / RARELY) * math.sqrt(math.pi / 2 / count) * deviation
