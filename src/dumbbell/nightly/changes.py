"""Change points of series, and their confirmation.

Candidates are those of Apache Otava: E-Divisive (D. S. Matteson and N. A. James, 2014) with Student's t-test
in windows (M. Fleming et al., "Hunter", 2023). A candidate of the last :data:`FRESH` nights is confirmed by
measuring its point again before it is reported.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy
from otava.analysis import compute_change_points

WINDOW = 50  # nights
P_VALUE = 0.005  # of a candidate
CONFIRMED_P = 0.003  # of the values before the change against those that were measured again
FRESH = 14  # nights
LEAST_NIGHTS = 6  # a shorter series has no change points
AGAIN = 8  # number of repeated measurements of a point


@dataclass(frozen=True)
class Change:
    """A change at ``index``: medians before and after. ``effect`` is relative to ``before``."""

    index: int
    before: float
    after: float

    @property
    def effect(self) -> float:
        """(after - before) / before, infinite from 0."""
        if self.before:
            return self.after / self.before - 1
        return 0.0 if self.after == self.before else float("inf")


def changes(values: Sequence[float], least_effect: float, *, exact: bool = False) -> list[Change]:
    """Change points of a series in the order of its nights, of at least this relative effect.

    None of fewer than :data:`LEAST_NIGHTS` values. ``exact`` values, from virtual time, have no noise:
    each value that differs from the previous one is a change.
    """
    if exact:
        indices = [i for i, (a, b) in enumerate(pairwise(values), 1) if a != b]
    elif len(values) < LEAST_NIGHTS:
        indices = []
    else:
        found, _ = compute_change_points(
            list(values), window_len=WINDOW, max_pvalue=P_VALUE, min_magnitude=least_effect
        )
        indices = [point.index for point in found]
    medians = [statistics.median(values[a:b]) for a, b in pairwise([0, *indices, len(values)])]
    each = [Change(index, medians[i], medians[i + 1]) for i, index in enumerate(indices)]
    return [change for change in each if abs(change.effect) >= least_effect]


def fresh(values: Sequence[float], least_effect: float, *, exact: bool = False) -> Change | None:
    """The last change of a series, if it is in the last :data:`FRESH` nights."""
    found = changes(values, least_effect, exact=exact)
    return found[-1] if found and found[-1].index >= len(values) - FRESH else None


def confirmed(
    values: Sequence[float],
    change: Change,
    again: Sequence[float],
    least_effect: float,
    *,
    exact: bool = False,
) -> bool:
    """Whether repeated measurements show the same change: direction, size, and significance.

    Only ``again`` counts, because the value that raised the suspicion was chosen for being extreme. An exact
    value must be the same once more.
    """
    if exact:
        return bool(again) and statistics.median(again) == values[-1]
    if len(again) < AGAIN // 2:
        return False
    before = np.asarray(values[: change.index], float)[-WINDOW:]
    now = float(np.median(again))
    base = float(np.median(before))
    effect = Change(change.index, base, now).effect
    if effect * change.effect <= 0 or abs(effect) < least_effect / 2:
        return False
    p = float(scipy.stats.mannwhitneyu(before, again, alternative="two-sided").pvalue)
    return p < CONFIRMED_P
