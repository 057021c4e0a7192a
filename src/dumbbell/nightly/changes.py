"""Change points of series, and what confirms them.

Candidates are those of Apache Otava: E-Divisive (D. S. Matteson and N. A. James, 2014) with Student's t-test
in windows (M. Fleming et al., "Hunter", 2023), and the last change of what is under test. More values of the
same night confirm none: they have in common what that night did to all of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from otava.analysis import compute_change_points

from dumbbell.analysis.statistics import LEVEL

Floats = NDArray[np.float64]
Pairs = Sequence[tuple[float, float]]  # a value before, and one after

WINDOW = 50  # nights
P_VALUE = 0.01  # of a candidate
P_SUSPECT = 0.03  # the same where something else is under test since; enough for an A/B
FRESH = 14  # nights
LEAST_NIGHTS = 6  # a shorter series has no change points
NEAR = 2  # nights that a change point may be off from a change of what is under test
LATER = 3  # fewest nights since a change that confirm it
P_LATER = 0.00005  # of the nights before a change against those since, by Student's t-test
P_TESTED = 0.0005  # the same where something else is under test since: one place, not all, is looked at
PAIRS = 8  # runs of an A/B on each side; in virtual time the fewest seeds
P_PAIRS = 0.004  # of pairs that all go one way by chance; 8 of 8 do so with 1/256
RESAMPLES = 10_000  # of more pairs than can be counted out


class Least(NamedTuple):
    """The smallest change that counts: relative, and absolute in the metric's unit; it must reach both."""

    relative: float
    absolute: float = 0.0

    def reached(self, before: float, after: float) -> bool:
        """Whether a change counts. From 0, and to 0, only the absolute limit says so."""
        return before != after and abs(after - before) >= max(self.relative * abs(before), self.absolute)

    @property
    def half(self) -> Least:
        """Half of it, for a second measurement of a change that was large enough."""
        return Least(self.relative / 2, self.absolute / 2)


@dataclass(frozen=True)
class Change:
    """A change at ``index`` from the level since ``start``: medians before and after."""

    index: int
    before: float
    after: float
    start: int = 0

    @property
    def up(self) -> bool:
        """Whether the values have grown."""
        return self.after > self.before


@dataclass(frozen=True)
class Evidence:
    """What confirms a change, in words; the interval (95 %) of after - before, None if it is not known."""

    told: str
    low: float | None
    high: float | None


def changes(
    values: Sequence[float], least: Least, *, tested: Collection[int] = (), exact: bool = False
) -> list[Change]:
    """Change points of a series in the order of its nights.

    None of fewer than :data:`LEAST_NIGHTS` values. ``tested`` are the indices at which something else is
    under test than before: a change point close to one is taken for that. ``exact`` values, from virtual
    time, have no noise: each that differs from the previous one is a change.
    """
    if exact:
        indices = [i for i, (a, b) in enumerate(pairwise(values), 1) if a != b]
    elif len(values) < LEAST_NIGHTS:
        indices = []
    else:
        within = [at for at in tested if 0 < at < len(values)]
        indices = sorted({_nearest(index, within) for index in _candidates(tuple(values), least.relative)})
    starts = [0, *indices]
    medians = [statistics.median(values[a:b]) for a, b in pairwise([*starts, len(values)])]
    each = [Change(index, medians[i], medians[i + 1], starts[i]) for i, index in enumerate(indices)]
    return [change for change in each if least.reached(change.before, change.after)]


@lru_cache(maxsize=2**14)
def _candidates(values: tuple[float, ...], least_relative: float) -> tuple[int, ...]:
    found, _ = compute_change_points(
        list(values), window_len=WINDOW, max_pvalue=P_VALUE, min_magnitude=least_relative
    )
    return tuple(point.index for point in found)


def _nearest(index: int, tested: Collection[int]) -> int:
    near = [at for at in tested if abs(at - index) <= NEAR]
    return min(near, key=lambda at: (abs(at - index), at), default=index)


def fresh(
    values: Sequence[float], least: Least, *, tested: Collection[int] = (), exact: bool = False
) -> Change | None:
    """The last change of a series, if it is in the last :data:`FRESH` nights."""
    found = changes(values, least, tested=tested, exact=exact)
    return found[-1] if found and found[-1].index >= len(values) - FRESH else None


def judged(
    values: Sequence[float], least: Least, tested: Collection[int], pairs: Callable[[Change], Pairs]
) -> tuple[Change | None, Evidence | None]:
    """The last change of a series, and what confirms it; None if nothing does yet.

    ``pairs`` gives those of an A/B of what was under test before a change and what is now, or none.
    """
    change = fresh(values, least, tested=tested)
    planned = _at_last_tested(values, least, tested)
    for one in (change, planned):
        if one and (evidence := by_nights(values, one, tested)):
            return one, evidence
    if planned and _p_value(*_sides(values, planned)) < P_SUSPECT:
        change = planned
    if change is None or change.index not in tested:
        return change, None
    found = pairs(change)
    return change, by_pairs(found, least, up=change.up, told=f"an A/B in the same night, {len(found)} pairs")


def _at_last_tested(values: Sequence[float], least: Least, tested: Collection[int]) -> Change | None:
    """The change where what is under test has changed last, if that is fresh and the change counts."""
    at = max(tested, default=0)
    if at < len(values) - FRESH or at < LEAST_NIGHTS - 1:
        return None
    start = max((change.index for change in changes(values[:at], least, tested=tested)), default=0)
    change = Change(at, statistics.median(values[start:at]), statistics.median(values[at:]), start)
    return change if least.reached(change.before, change.after) else None


def by_nights(values: Sequence[float], change: Change, tested: Collection[int] = ()) -> Evidence | None:
    """Whether the nights since a change confirm it: there are enough, and they differ from those before.

    Several changes of what is under test share :data:`P_TESTED`.
    """
    before, after = _sides(values, change)
    limit = max(P_LATER, P_TESTED / len(tested)) if change.index in tested else P_LATER
    if min(len(before), len(after)) < LATER or not _p_value(before, after) < limit:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):  # of nights without any noise
        interval = scipy.stats.ttest_ind(after, before, equal_var=False).confidence_interval(LEVEL)
    ends = float(interval.low), float(interval.high)
    told = f"the nights: {len(before)} before, {len(after)} since"
    return Evidence(told, *(ends if all(map(math.isfinite, ends)) else (None, None)))


def _sides(values: Sequence[float], change: Change) -> tuple[Floats, Floats]:
    before = values[change.start : change.index][-WINDOW:]
    return np.asarray(before, float), np.asarray(values[change.index :], float)


def _p_value(before: Floats, after: Floats) -> float:
    """p of Student's t-test, also of a single value after; 1 if there is too little to say."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p = float(scipy.stats.ttest_ind(after, before).pvalue)
    return 1.0 if math.isnan(p) else p


def by_pairs(pairs: Pairs, least: Least, *, up: bool, told: str) -> Evidence | None:
    """Whether values that were measured in pairs, before and after, show a change in this direction.

    By a permutation test of their signs: exact for few pairs. None of fewer than :data:`PAIRS`.
    """
    if len(pairs) < PAIRS:
        return None
    differences = np.asarray([after - before for before, after in pairs], float)
    before = statistics.median(one for one, _ in pairs)
    middle = float(np.median(differences))
    if (middle > 0) != up or not least.half.reached(before, before + middle):
        return None
    found: Any = scipy.stats.permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        alternative="greater" if up else "less",
        n_resamples=RESAMPLES,
        vectorized=True,
        rng=np.random.default_rng(1),
    )
    if not found.pvalue < P_PAIRS:
        return None
    mean, error = float(np.mean(differences)), float(scipy.stats.sem(differences))
    half = float(scipy.stats.t.ppf((1 + LEVEL) / 2, len(pairs) - 1)) * error
    return Evidence(told, mean - half, mean + half)
