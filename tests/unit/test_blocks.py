"""The effect of a side over blocks: its test, its interval, and what both have in common."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.ab import experiments
from dumbbell.analysis.blocks import COUNTED_OUT, effect

DIFFERENCES = st.lists(st.integers(-1000, 1000).map(lambda x: x / 7), min_size=1, max_size=9)


@settings(deadline=None)
@given(DIFFERENCES, st.integers(0, 4), st.sampled_from([0.95, 0.975]))
def test_an_interval_excludes_0_where_the_test_refutes_it(
    differences: list[float], pilot: int, level: float
) -> None:
    found = effect(differences, pilot=pilot, level=level)
    if found.low is None or found.high is None:
        assert found.least_p > 1 - level
        assert found.p > 1 - level
        return
    assert found.low <= found.value <= found.high
    if 0 not in (found.low, found.high):
        assert (found.p <= 1 - level) == (not found.low < 0 < found.high)


@settings(deadline=None)
@given(DIFFERENCES, st.floats(-100, 100))
def test_an_interval_moves_with_the_values(differences: list[float], shift: float) -> None:
    found, moved = effect(differences), effect([value + shift for value in differences])
    assert moved.value == pytest.approx(found.value + shift, abs=1e-6)
    assert (moved.low is None) == (found.low is None)
    if found.low is not None:
        assert moved.low == pytest.approx(found.low + shift, abs=1e-6)


def test_six_blocks_of_one_sign_are_the_fewest_that_show_anything() -> None:
    assert effect([1, 2, 3, 4, 5]).low is None
    found = effect([1, 2, 3, 4, 5, 6])
    assert (found.low, found.value, found.high) == (1, 3.5, 6)
    assert found.p == found.least_p == 2 / 2**6


def test_a_pilot_counts_as_one_block_of_its_size() -> None:
    found = effect([1, 2, 3, 4, 10, 10, 10, 10], pilot=4)
    assert found.value == pytest.approx(6.25)
    assert found.n == 8
    assert found.low is None
    assert found.least_p == 2**-4


def test_p_is_scipy_s() -> None:
    values = np.random.default_rng(1).standard_normal(8)
    exact = scipy.stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=10**4)
    assert effect(values.tolist()).p == pytest.approx(exact.pvalue)


def test_of_many_blocks_signs_are_drawn() -> None:
    values = np.random.default_rng(2).standard_normal(COUNTED_OUT + 10) + 1
    found = effect(values.tolist())
    assert found.low is not None
    assert found.high is not None
    students = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    assert [found.low, found.high] == pytest.approx([students.low, students.high], abs=0.1)


def test_without_blocks_there_is_no_effect() -> None:
    with pytest.raises(ValueError, match="no block"):
        effect([])


@pytest.mark.parametrize("piloted", [False, True])
def test_of_simulated_experiments_intervals_hold_and_alarms_are_rare(piloted: bool) -> None:
    """By bench/ab.py, which simulates more of them; of 300 they are off by up to 3 standard errors."""
    found = experiments(300, noise="normal", by=0.01, piloted=piloted)
    assert found.covered >= 0.95 - 3 * (0.95 * 0.05 / 300) ** 0.5
    assert found.alarms <= 0.05 + 3 * (0.95 * 0.05 / 300) ** 0.5


@pytest.mark.parametrize("sides", [2, 4])
def test_the_rounds_that_a_pilot_asks_for_show_what_matters(sides: int) -> None:
    """In 80 % of experiments, of which 600 are off by up to 3 standard errors."""
    found = experiments(600, noise="normal", by=0.014, piloted=True, sides=sides)
    assert found.detected >= 0.8 - 3 * (0.8 * 0.2 / 600) ** 0.5
    assert found.rounds < 25
