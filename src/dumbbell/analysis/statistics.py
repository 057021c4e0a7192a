"""Statistics of samples: fits, outliers, intervals, and detectable changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Literal

import numpy as np
import polars as pl
import scipy  # loads its parts where they are used: together they take longer than all else here
from numpy.typing import ArrayLike, NDArray

CANDIDATES = 400  # places that are tried for a kink
RESAMPLES = 2000  # of a bootstrap
LEVEL = 0.95  # of intervals
POWER = 0.8  # with which the smallest detectable effect is seen

Floats = NDArray[np.float64]


def percentile(values: pl.Series, percent: float) -> float | None:
    """Linearly interpolated between the two nearest; None of nothing."""
    found = values.drop_nulls().quantile(percent / 100, interpolation="linear")
    return None if found is None else float(found)


@dataclass(frozen=True)
class Slope:
    """A straight line through a growing counter: its growth per unit of x, and its correlation."""

    slope: float
    intercept: float
    r2: float


def slope(x: ArrayLike, y: ArrayLike) -> Slope | None:
    """Least squares; None of fewer than two different x."""
    a, b = np.asarray(x, float), np.asarray(y, float)
    if a.size < 2 or np.ptp(a) == 0:  # noqa: PLR2004
        return None
    line = scipy.stats.linregress(a, b)
    # A counter that stands still is perfectly straight, and its correlation is not defined.
    r2 = 1.0 if np.ptp(b) == 0 else float(line.rvalue) ** 2
    return Slope(float(line.slope), float(line.intercept), r2)


@dataclass(frozen=True)
class Kink:
    """Where two straight lines meet, their slopes, and the share of the variance that they explain."""

    x: float
    y: float
    below: float
    above: float
    r2: float


def kink(x: ArrayLike, y: ArrayLike) -> Kink | None:
    """The continuous pair of straight lines that fits best, of all whose kink is at a quantile of x.

    Of the rate against the congestion window the kink is where the window is the bandwidth-delay product:
    below it the rate grows with the window, above it stays. None of fewer than four different x.
    """
    a, b = np.asarray(x, float), np.asarray(y, float)
    if np.unique(a).size < 4:  # noqa: PLR2004
        return None
    order = np.argsort(a, kind="stable")
    centre, scale = a.mean(), a.std()
    u, v = (a[order] - centre) / scale, b[order] - b.mean()
    ks = np.unique(np.quantile(u, np.linspace(0, 1, CANDIDATES + 2)))[1:-1]

    # Least squares of v = p + q u + r max(0, u - k) for all k at once, from sums over the points above each.
    def above(values: Floats) -> Floats:
        sums = np.append(np.cumsum(values[::-1])[::-1], 0.0)
        found: Floats = sums[np.searchsorted(u, ks, side="right")]
        return found

    n, su, suu, sv, suv = (above(values) for values in (np.ones_like(u), u, u * u, v, u * v))
    h, uh, hh, hv = su - ks * n, suu - ks * su, suu - 2 * ks * su + ks**2 * n, suv - ks * sv
    one, zero = np.ones_like(ks), np.zeros_like(ks)
    normal = np.moveaxis(np.array([[one * u.size, zero, h], [zero, one * (u @ u), uh], [h, uh, hh]]), 2, 0)
    right = np.array([zero, one * (u @ v), hv]).T
    solved = (np.linalg.pinv(normal, hermitian=True) @ right[..., None])[..., 0]
    explained = (solved * right).sum(axis=1)  # of the sum of squares
    best = int(np.argmax(explained))
    constant, below, more = solved[best]
    total = float(v @ v)
    return Kink(
        x=float(ks[best] * scale + centre),
        y=float(constant + below * ks[best] + b.mean()),
        below=float(below / scale),
        above=float((below + more) / scale),
        r2=float(explained[best]) / total if total > 0 else 1.0,
    )


def beyond_two_sigma(values: pl.Series, around: Literal["mean", "min"] = "mean") -> pl.Series:
    """Which values are two standard deviations or more from their mean, or above their smallest.

    A rule of thumb that guesses which fetches lost a packet; where the kernel counted retransmissions,
    compare with those (:func:`confusion`). The smallest is what the published analysis of PRR takes.
    """
    sigma = values.std()
    if not isinstance(sigma, float) or not sigma > 0:
        return pl.Series(values.name, [False] * len(values), dtype=pl.Boolean)
    centre = values.mean() if around == "mean" else values.min()
    return (values - centre).abs() >= 2 * sigma


def confusion(guessed: pl.Series, true: pl.Series) -> dict[str, int]:
    """How often a guess was right, and how it was wrong."""
    return {
        "true_positive": int((guessed & true).sum()),
        "false_positive": int((guessed & ~true).sum()),
        "false_negative": int((~guessed & true).sum()),
        "true_negative": int((~guessed & ~true).sum()),
    }


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    value: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether the interval does not contain a value."""
        return not self.low <= value <= self.high


def median_interval(values: Sequence[float], *, seed: int = 1) -> Interval | None:
    """Interval of a median, by bootstrap at :data:`LEVEL`; None of fewer than two values."""
    return _bootstrap([values], lambda x, axis: np.median(x, axis=axis), seed)


def percentile_interval(values: Sequence[float], percent: float, *, seed: int = 1) -> Interval | None:
    """Interval of a percentile, by bootstrap; None of fewer than two values.

    Of a percentile far out it needs many values: it never reaches beyond the largest of them.
    """
    return _bootstrap([values], lambda x, axis: np.percentile(x, percent, axis=axis), seed)


def share_interval(count: int, of: int) -> Interval | None:
    """Interval of a share that was counted (E. B. Wilson, 1927); None of nothing."""
    if not of:
        return None
    found = scipy.stats.binomtest(count, of).proportion_ci(LEVEL, method="wilson")
    return Interval(count / of, float(found.low), float(found.high))


def ratio_interval(new: Sequence[float], old: Sequence[float], *, seed: int = 1) -> Interval | None:
    """Interval of the ratio of two medians; None of fewer than two values each, or of old ones at 0."""
    if any(value <= 0 for value in old):
        return None
    return _bootstrap([new, old], lambda x, y, axis: np.median(x, axis=axis) / np.median(y, axis=axis), seed)


def difference_interval(new: Sequence[float], old: Sequence[float], *, seed: int = 1) -> Interval | None:
    """Interval of the difference of two medians; None of fewer than two values each."""
    return _bootstrap([new, old], lambda x, y, axis: np.median(x, axis=axis) - np.median(y, axis=axis), seed)


def _bootstrap(
    samples: Sequence[Sequence[float]], statistic: Callable[..., Any], seed: int
) -> Interval | None:
    """By percentiles: of few repetitions it is narrower than it should be."""
    if any(len(values) < 2 for values in samples):  # noqa: PLR2004
        return None
    found = scipy.stats.bootstrap(
        [np.asarray(values, float) for values in samples],
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    value = statistic(*(np.asarray(values, float) for values in samples), axis=-1)
    return Interval(float(value), float(found.low), float(found.high))


def rank_test(new: Sequence[float], old: Sequence[float]) -> float:
    """p of the two-sided Mann-Whitney test: how likely such different sets have the same distribution."""
    return float(scipy.stats.mannwhitneyu(new, old, alternative="two-sided").pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """p of several tests, corrected for their number, in the order given (S. Holm, 1979)."""
    corrected, worst = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = worst
    return corrected


def variation(values: Sequence[float]) -> float | None:
    """Coefficient of variation; None of fewer than two values, or if their mean is 0."""
    return stdev(values) / abs(mean(values)) if len(values) > 1 and mean(values) else None


def detectable(values: Sequence[float], repetitions: int | None = None, tests: int = 1) -> float | None:
    """The smallest relative change of a mean that two sets of this spread and size show, with :data:`POWER`.

    Of two sets of ``repetitions`` each (by default as many as there are values), by the two-sided t-test at
    1 - :data:`LEVEL`; of one of several ``tests`` at their share of that, which Holm's correction leaves to
    the first. None of fewer than two values, or around 0.
    """
    n = repetitions or len(values)
    if len(values) < 2 or n < 2:  # noqa: PLR2004
        return None
    mean, sigma = float(np.mean(values)), float(np.std(values, ddof=1))
    if mean == 0:
        return None
    degrees = 2 * n - 2
    significant = float(scipy.stats.t.isf((1 - LEVEL) / tests / 2, degrees))
    quantiles = significant + float(scipy.stats.t.ppf(POWER, degrees))
    return quantiles * sigma * math.sqrt(2 / n) / abs(mean)


def medians(rows: pl.DataFrame, by: Sequence[str], column: str) -> pl.DataFrame:
    """``[*by, median, least, most, n]`` of a column, in the order of ``by`` with nulls last."""
    values = pl.col(column)
    grouped = rows.group_by(*by, maintain_order=True).agg(
        median=values.median(), least=values.min(), most=values.max(), n=pl.len()
    )
    return grouped.sort(list(by), nulls_last=True)
