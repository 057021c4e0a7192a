"""Statistics against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbbell import analysis


def test_slope_of_a_counter() -> None:
    found = analysis.slope([0, 1, 2, 3], [1, 3, 5, 7])
    assert found is not None
    assert (found.slope, found.intercept, found.r2) == pytest.approx((2, 1, 1))


def test_slope_and_its_straightness() -> None:
    # Means 1 and 1; sums of products 1, of squares 2 and 2: slope 1/2, r2 1/4.
    found = analysis.slope([0, 1, 2], [0, 2, 1])
    assert found is not None
    assert (found.slope, found.intercept, found.r2) == pytest.approx((0.5, 0.5, 0.25))


@pytest.mark.parametrize("x", [[], [1], [2, 2, 2]])
def test_no_slope(x: list[float]) -> None:
    assert analysis.slope(x, x) is None


def test_a_counter_that_stands_still() -> None:
    found = analysis.slope([0, 1, 2], [4, 4, 4])
    assert found is not None
    assert (found.slope, found.r2) == (0, 1)


def test_the_kink_of_two_straight_lines() -> None:
    # A window of 0.75 MB: 1000 Mbit/s over 6 ms. The rate grows by 1000/0.75 for each MB until then.
    cwnd = np.linspace(0.4, 1.2, 801)
    found = analysis.kink(cwnd, np.minimum(cwnd / 0.75, 1) * 1000)
    assert found is not None
    assert found.x == pytest.approx(0.75, abs=0.002)
    assert found.y == pytest.approx(1000, rel=0.005)
    assert found.below == pytest.approx(1000 / 0.75, rel=0.01)
    assert found.above == pytest.approx(0, abs=2)
    assert found.r2 > 0.999


@given(
    at=st.floats(0.2, 0.8),
    below=st.floats(-5, 5),
    change=st.floats(0.5, 5).flatmap(lambda c: st.sampled_from([c, -c])),
    scale=st.sampled_from([1e-3, 1.0, 1e9]),
)
def test_any_kink_is_found(at: float, below: float, change: float, scale: float) -> None:
    x = np.linspace(0, 1, 401)
    found = analysis.kink(x * scale, below * x + change * np.maximum(0, x - at))
    assert found is not None
    assert found.x == pytest.approx(at * scale, abs=0.01 * scale)
    assert found.r2 > 0.99


def test_a_kink_is_found_in_noise() -> None:
    random = np.random.default_rng(7)
    cwnd = random.uniform(0.4, 1.2, 5000)
    rate = np.minimum(cwnd / 0.69, 1) * 918 + random.normal(0, 20, 5000)
    found = analysis.kink(cwnd, rate)
    assert found is not None
    assert found.x == pytest.approx(0.69, rel=0.02)


@pytest.mark.parametrize("x", [[], [1, 2, 3], [1, 1, 1, 1, 1], [1, 1, 2, 2, 3, 3]])
def test_no_kink(x: list[float]) -> None:
    assert analysis.kink(x, x) is None


def test_beyond_two_sigma_of_the_mean_or_of_the_smallest() -> None:
    # Mean 2, variance (9 * 1 + 81) / 9 = 10: two sigma are 6.3.
    times = pl.Series([1.0] * 9 + [11.0])
    assert analysis.beyond_two_sigma(times).to_list() == [False] * 9 + [True]
    # Mean 7/3, sigma sqrt(34 / 15) = 1.51: 5 is less than 3.01 from the mean, and more from 1.
    times = pl.Series([1.0, 1.0, 2.0, 2.0, 3.0, 5.0])
    assert analysis.beyond_two_sigma(times).to_list() == [False] * 6
    assert analysis.beyond_two_sigma(times, "min").to_list() == [False] * 5 + [True]


def test_values_that_do_not_differ_have_no_outliers() -> None:
    assert analysis.beyond_two_sigma(pl.Series([2.0, 2.0, 2.0])).to_list() == [False] * 3
    assert analysis.beyond_two_sigma(pl.Series([2.0])).to_list() == [False]


def test_how_often_a_guess_was_right() -> None:
    guessed, true = pl.Series([True, True, False, False, False]), pl.Series([True, False, True, False, False])
    assert analysis.confusion(guessed, true) == {
        "true_positive": 1,
        "false_positive": 1,
        "false_negative": 1,
        "true_negative": 2,
    }


def test_the_interval_of_a_median() -> None:
    found = analysis.median_interval([1.0, 2.0, 3.0, 4.0, 100.0])
    assert found is not None
    assert found.value == 3
    assert 1 <= found.low < 3 < found.high <= 100
    assert found == analysis.median_interval([1.0, 2.0, 3.0, 4.0, 100.0])  # the same each time


def test_the_interval_of_a_ratio() -> None:
    found = analysis.ratio_interval([20.0, 22.0, 24.0, 21.0, 23.0], [10.0, 11.0, 12.0, 10.5, 11.5])
    assert found is not None
    assert found.value == 2
    assert found.excludes(1)
    assert not found.excludes(2)
    same = analysis.ratio_interval([10.0, 12.0, 11.0], [11.0, 10.0, 12.0])
    assert same is not None
    assert not same.excludes(1)


def test_intervals_cover_what_they_say() -> None:
    """Of a hundred experiments with one true difference, some 95 intervals contain it."""
    random = np.random.default_rng(3)
    covering = 0
    for seed in range(100):
        new, old = random.normal(12, 1, 30).tolist(), random.normal(10, 1, 30).tolist()
        found = analysis.difference_interval(new, old, seed=seed)
        assert found is not None
        covering += not found.excludes(2)
    assert 88 <= covering <= 100


@pytest.mark.parametrize("old", [[], [1.0], [0.0, 1.0]])
def test_no_interval(old: list[float]) -> None:
    assert analysis.ratio_interval([1.0, 2.0], old) is None


def test_the_smallest_change_that_can_be_seen() -> None:
    # Mean 10, sigma 1, 5 each: (t(0.975, 8) + t(0.8, 8)) * sqrt(2/5) / 10 = (2.306 + 0.889) * 0.0632.
    values = [9.0, 9.0, 10.0, 11.0, 11.0]
    assert analysis.detectable(values) == pytest.approx(0.2020, abs=0.0005)
    more = analysis.detectable(values, repetitions=50)
    assert more is not None
    assert more < 0.2020 / 3
    assert analysis.detectable([1.0]) is None
