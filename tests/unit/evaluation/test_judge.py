"""Judging made-up values."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dumbbell.evaluation.criteria import load
from dumbbell.evaluation.judge import FAIL, NO_ANSWER, PASS, Result, judge
from dumbbell.evaluation.measured import At, Values
from evaluation.test_criteria import written

SHORT, LONG = "queue=1bdp", "queue=2bdp"


def values(short: float | None, long: float | None, why: str = "invalid: no samples") -> Values:
    return {
        "used": {
            f"queue={queue}": At(
                {"queue": queue}, value, "" if value is not None else why, Path("report.html")
            )
            for queue, value in (("1bdp", short), ("2bdp", long))
        }
    }


def judged(tmp_path: Path, ends: str, against: tuple[str, ...] = (), **by_name: Values) -> Result:
    (file,) = load(written(tmp_path, ends))
    (result,) = judge(file.family, next(iter(by_name)), by_name, against)
    return result


@pytest.mark.parametrize(("value", "state"), [(0.9, PASS), (0.8999, FAIL), (0.95, PASS)])
def test_an_absolute_bound_is_inside(tmp_path: Path, value: float, state: str) -> None:
    assert judged(tmp_path, "min: 90%", mine=values(value, 1.0)).state == state


def test_one_bad_point_is_enough_and_decides(tmp_path: Path) -> None:
    result = judged(tmp_path, "min: 90%", mine=values(0.95, 0.4))
    assert (result.state, result.decisive.label, result.decisive.value) == (FAIL, LONG, 0.4)
    assert result.decisive.margin == pytest.approx(0.4 / 0.9)


def test_the_nearest_point_is_shown_if_all_pass(tmp_path: Path) -> None:
    assert judged(tmp_path, "min: 90%", mine=values(0.91, 0.95)).decisive.label == SHORT


def test_a_point_that_is_not_valid_has_no_answer(tmp_path: Path) -> None:
    result = judged(tmp_path, "min: 90%", mine=values(None, 0.95))
    assert (result.state, result.decisive.why) == (NO_ANSWER, "invalid: no samples")
    assert math.isnan(result.decisive.margin)


def test_a_failure_counts_beside_a_point_without_an_answer(tmp_path: Path) -> None:
    assert judged(tmp_path, "min: 90%", mine=values(None, 0.1)).state == FAIL


def test_only_points_that_it_is_about_count(tmp_path: Path) -> None:
    result = judged(tmp_path, "min: 90%, when: {queue: 1bdp}", mine=values(0.95, 0.1))
    assert ([point.label for point in result.points], result.state) == ([SHORT], PASS)


RELATIVE = "relative: {to: [reno, cubic], min: 0.9}"


def test_the_most_lenient_reference_counts_at_the_same_point(tmp_path: Path) -> None:
    found = judged(tmp_path, RELATIVE, mine=values(0.5, 0.8), reno=values(0.5, 0.9), cubic=values(0.9, 0.8))
    assert found.state == PASS
    assert found.points[0].low == pytest.approx(0.9 * 0.5 - 0.001)  # less what says nothing of it
    assert found.points[0].others == {"reno": 0.5, "cubic": 0.9}


def test_other_references_take_their_place(tmp_path: Path) -> None:
    by_name = {"mine": values(0.5, 0.8), "bbr": values(0.9, 0.9)}
    assert judged(tmp_path, RELATIVE, ("bbr",), **by_name).state == FAIL


def test_a_reference_without_a_value_gives_no_answer(tmp_path: Path) -> None:
    found = judged(tmp_path, RELATIVE, mine=values(0.9, 0.9), reno=values(0.9, None), cubic=values(1, 1))
    assert [point.state for point in found.points] == [PASS, NO_ANSWER]
    assert found.points[1].why == "reno: invalid: no samples"


def test_its_own_value_at_another_point(tmp_path: Path) -> None:
    ends = "when: {queue: 1bdp}, relative: {at: {queue: 2bdp}, min: 0.8}"
    assert judged(tmp_path, ends, mine=values(0.7, 0.9)).state == FAIL
    assert judged(tmp_path, ends, mine=values(0.75, 0.9)).state == PASS


def test_a_ratio_of_two_small_values_does_not_fail(tmp_path: Path) -> None:
    ends = "relative: {to: [cubic], max: 1.5}"
    assert judged(tmp_path, ends, mine=values(0.0009, 0), cubic=values(0, 0)).state == PASS
    assert judged(tmp_path, ends, mine=values(0.0011, 0), cubic=values(0, 0)).state == FAIL


def test_points_are_in_the_order_in_which_the_criterion_lists_them(tmp_path: Path) -> None:
    result = judged(tmp_path, "min: 90%, when: {queue: [2bdp, 1bdp]}", mine=values(0.95, 0.95))
    assert [point.label for point in result.points] == [LONG, SHORT]
