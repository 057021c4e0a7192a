"""Who runs when in an A/B, and how many rounds it takes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbbell.analysis.blocks import least_p, spread
from dumbbell.compare.design import (
    MOST_ROUNDS,
    PILOT,
    Arm,
    Design,
    detectable,
    least_rounds,
    level_of_each,
    needed_rounds,
    rounds,
)

SIDES = st.lists(st.text("abc-_", min_size=1, max_size=4), min_size=2, max_size=6, unique=True)
SEEDS = st.integers(0, 2**40)


@given(SIDES, st.integers(1, 40), SEEDS)
def test_each_side_runs_once_in_each_round(sides: list[str], number: int, seed: int) -> None:
    found = rounds(sides, number, seed)
    assert [one.number for one in found] == list(range(1, number + 1))
    assert all(sorted(one.sides) == sorted(sides) for one in found)


@given(SIDES, st.integers(1, 6), SEEDS)
def test_each_side_has_each_place_equally_often(sides: list[str], squares: int, seed: int) -> None:
    found = rounds(sides, squares * len(sides), seed)
    for place in zip(*(one.sides for one in found), strict=True):
        assert set(Counter(place).values()) == {squares}


@given(SIDES, st.integers(1, 20), st.integers(0, 20), SEEDS)
def test_fewer_rounds_are_the_first_of_more(sides: list[str], number: int, more: int, seed: int) -> None:
    assert rounds(sides, number + more, seed)[:number] == rounds(sides, number, seed)


@given(SIDES, SEEDS, st.integers(1, MOST_ROUNDS))
def test_no_two_runs_of_a_side_have_the_same_seed(sides: list[str], seed: int, number: int) -> None:
    found = [one.again(attempt) for one in rounds(sides, number, seed) for attempt in (1, 2, 3)]
    assert len({one.seed for one in found}) == len(found)


def test_orders_differ_by_seed() -> None:
    assert len({tuple(one.sides for one in rounds("ab", 20, seed)) for seed in range(20)}) > 10


def test_a_design_is_read_as_it_was_written() -> None:
    arms = {side: Arm(profile=side, plan=digest) for side, digest in (("a", "0"), ("b", "1"))}
    made = Design(
        scenario="x.yml", inventory="y", sides=arms, metric="rtt p95", of="flow1", least=0.02, pilot=4,
        rounds=rounds("ab", 9, 1),
    )  # fmt: skip
    assert Design.model_validate_json(made.model_dump_json()) == made
    assert list(Design.model_validate_json(made.model_dump_json()).sides) == ["a", "b"]


@pytest.mark.parametrize(("sides", "fewest"), [(2, 6), (3, 7), (4, 7), (5, 8)])
def test_the_fewest_rounds_can_just_show_something(sides: int, fewest: int) -> None:
    limit = 1 - level_of_each(sides)
    assert least_rounds(sides) == fewest
    assert least_p(fewest) <= limit < least_p(fewest - 1)
    assert least_rounds(sides, PILOT) == PILOT + fewest - 1


@given(st.floats(0.001, 0.1), st.floats(0.005, 0.1), st.integers(2, 5))
def test_more_spread_and_smaller_differences_take_more_rounds(
    deviation: float, least: float, sides: int
) -> None:
    degrees = (PILOT - 1) * (sides - 1)
    needed = needed_rounds(deviation, degrees, least, sides, PILOT)
    assert needed > least_rounds(sides, PILOT)
    assert needed_rounds(2 * deviation, degrees, least, sides, PILOT) >= needed
    assert needed_rounds(deviation, degrees, 2 * least, sides, PILOT) <= needed
    assert detectable(deviation, degrees, needed, sides, PILOT) <= least * (1 + 1e-9)


def test_without_a_pilot_there_are_as_many_rounds_as_a_t_test_needs() -> None:
    assert needed_rounds(1, 10_000, 1, 2, 0) == 10
    assert needed_rounds(3, 10_000, 1, 2, 0) == 73
    assert needed_rounds(3, 3, 1, 2, 0) > 120  # if four rounds have told the spread


VALUES = st.lists(st.tuples(*[st.floats(-10, 10)] * 3), min_size=2, max_size=8)


@given(VALUES, st.floats(-5, 5), st.permutations(range(3)))
def test_the_spread_of_a_pilot_does_not_know_which_side_is_which(
    values: list[tuple[float, ...]], shift: float, order: list[int]
) -> None:
    """So the number of rounds that follows from it does not affect the test."""
    table = np.array(values)
    deviation, degrees = spread(table)
    assert degrees == 2 * (len(values) - 1)
    assert spread(table[:, order])[0] == pytest.approx(deviation, abs=1e-9)
    table[:, 1] += shift
    assert spread(table)[0] == pytest.approx(deviation, abs=1e-9)


def test_the_spread_of_two_sides_is_that_of_their_differences() -> None:
    table = np.random.default_rng(1).standard_normal((7, 2))
    assert spread(table)[0] == pytest.approx(np.std(table[:, 1] - table[:, 0], ddof=1))
