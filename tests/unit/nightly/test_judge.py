"""When somebody is told that something has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from dumbbell.metrics.registry import METRICS
from dumbbell.nightly.changes import PAIRS, Change, Least, by_nights, by_pairs, changes, fresh
from dumbbell.nightly.identity import identity
from dumbbell.nightly.judge import Acknowledgement, Finding, judge
from nightly.nights import KERNEL, LEAST, MBIT, Nights, night, rows

NEW = {"sender1 kernel": "7.2.12"}


def states(found: Sequence[Finding]) -> list[str]:
    return [finding.state for finding in found]


def test_nights_that_are_alike_say_nothing(nights: Nights) -> None:
    assert [nights.passes() for _ in range(15)] == [[]] * 15


def test_a_regression_of_the_testbed_is_confirmed_by_the_next_nights(nights: Nights) -> None:
    for _ in range(8):
        assert nights.passes() == []
    nights.level = 90.0
    told = [nights.passes() for _ in range(5)]
    assert [states(found) for found in told[:2]] == [["not confirmed"]] * 2
    assert told[0][0].reason == "at least 2 more nights will tell"
    (finding,) = told[2]
    assert (finding.state, finding.worse, finding.alarm) == ("new", True, True)
    assert (finding.since, finding.tested, finding.evidence) == (
        night(9),
        "",
        "the nights: 8 before, 3 since",
    )
    assert finding.effect == pytest.approx(-0.1, abs=0.01)
    assert finding.low is not None
    assert finding.high is not None
    assert finding.low < -10 * MBIT < finding.high < -8 * MBIT
    assert [states(found) for found in told[3:]] == [["open"]] * 2
    assert nights.asked == 0
    nights.level = 100.0
    assert [states(nights.passes()) for _ in range(2)] == [["open", "not confirmed"]] * 2
    (finding,) = nights.passes()
    assert (finding.state, finding.alarm) == ("recovered", False)
    assert [nights.passes() for _ in range(10)] == [[]] * 10


def test_a_regression_of_a_kernel_is_confirmed_in_its_first_night_by_an_ab(nights: Nights) -> None:
    for _ in range(8):
        assert nights.passes() == []
    nights.level = 96.0
    (finding,) = nights.passes(NEW)
    assert (finding.state, finding.alarm, finding.since) == ("new", True, night(9))
    assert finding.tested == "sender1 kernel 6.12.1 to 7.2.12"
    assert finding.evidence == "an A/B in the same night, 8 pairs"
    assert finding.low is not None
    assert finding.high is not None
    assert finding.low < -4 * MBIT < finding.high < -3 * MBIT
    assert nights.asked == 1
    assert states(nights.passes({**NEW, "controller checkout": "abc"})) == ["open"]
    nights.level = 100.0
    (finding,) = nights.passes()
    assert (finding.state, finding.since) == ("recovered", night(9))
    assert [nights.passes() for _ in range(8)] == [[]] * 8


def test_an_ab_that_shows_nothing_is_told_and_is_run_in_few_nights(nights: Nights) -> None:
    for _ in range(8):
        nights.passes()
    nights.in_turn = even(nights)  # type: ignore[method-assign]
    nights.level = 90.0
    told = [nights.passes(NEW) for _ in range(2)]
    assert [states(found) for found in told] == [["not confirmed"]] * 2
    assert told[1][0].reason == "an A/B of 16 pairs does not show it; the next nights will tell"
    assert nights.passes(NEW)[0].evidence == "the nights: 8 before, 3 since"
    assert nights.asked == 2


def even(nights: Nights):  # type: ignore[no-untyped-def]
    def pairs(*_: object) -> list[tuple[float, float]]:
        nights.asked += 1
        return list(zip(nights.values(PAIRS, 95.0), nights.values(PAIRS, 95.0), strict=True))

    return pairs


def test_a_kernel_that_is_gone_leaves_it_to_the_next_nights(nights: Nights) -> None:
    nights.kernels = False
    for _ in range(8):
        nights.passes()
    nights.level = 96.0
    told = [nights.passes(NEW) for _ in range(3)]
    assert [states(found) for found in told] == [["not confirmed"], ["not confirmed"], ["new"]]
    assert told[0][0].reason == "there is no A/B: the kernel is gone; the next nights will tell"


def test_one_bad_night_is_no_alarm(nights: Nights) -> None:
    for level in (*(100.0,) * 10, 80.0, *(100.0,) * 10):
        nights.level = level
        assert set(states(nights.passes())) <= {"not confirmed"}
    assert nights.history.alarms() == []


def test_a_night_without_the_point_says_that_the_alarm_is_open(nights: Nights) -> None:
    for level, count in ((100.0, 8), (90.0, 3)):
        nights.level = level
        for _ in range(count):
            nights.passes()
    nights.count += 1  # the receiver is off
    (finding,) = nights.judged()
    assert (finding.state, finding.alarm, finding.reason) == ("open", True, "it was not measured tonight")
    assert states(nights.judged(points={"abc"})) == ["open"]
    (finding,) = nights.judged(points={"another"})
    assert (finding.state, finding.alarm) == ("gone", False)
    nights.count += 1
    assert nights.judged(points={"another"}) == []


def test_an_alarm_of_another_definition_ends(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    for level, count in ((100.0, 8), (90.0, 3)):
        nights.level = level
        for _ in range(count):
            nights.passes()
    monkeypatch.setitem(METRICS, "goodput", replace(METRICS["goodput"], version=2))
    assert states(nights.passes()) == ["redefined"]
    assert nights.history.outdated() == [(night(i), Path(night(i))) for i in range(1, 12)]
    assert [series.nights for series in nights.history.series()] == [(night(12),)]


def test_a_worse_change_is_told_beside_an_open_alarm(nights: Nights) -> None:
    for level, count in ((100.0, 8), (90.0, 4)):
        nights.level = level
        for _ in range(count):
            nights.passes()
    nights.level = 70.0
    told = [nights.passes() for _ in range(4)]
    assert all(
        found[0].state == "open" and found[0].before == pytest.approx(100 * MBIT, rel=0.01) for found in told
    )
    assert [states(found) for found in told] == [
        *[["open", "not confirmed"]] * 2,
        *(["open", "new"], ["open", "open"]),
    ]
    assert (told[2][1].worse, told[2][1].alarm) == (True, True)
    assert told[2][1].effect == pytest.approx(70 / 90 - 1, abs=0.01)
    nights.level = 90.0
    assert [states(nights.passes()) for _ in range(3)][-1] == ["open", "recovered"]
    assert states(nights.passes()) == ["open"]
    nights.level = 100.0
    assert [states(nights.passes()) for _ in range(3)][-1] == ["recovered"]
    assert [nights.passes() for _ in range(8)] == [[]] * 8


def test_a_night_that_is_judged_again_says_the_same(nights: Nights) -> None:
    for level, count in ((100.0, 8), (90.0, 4), (70.0, 4), (100.0, 4), (110.0, 4)):
        nights.level = level
        for _ in range(count):
            told = nights.passes()
            assert nights.judged() == told


def test_all_of_several_alarms_end_where_the_first_began(nights: Nights) -> None:
    for level, count in ((100.0, 8), (90.0, 4), (70.0, 4), (100.0, 3)):
        nights.level = level
        told = [nights.passes() for _ in range(count)]
    assert states(told[-1]) == ["recovered", "recovered"]
    assert [nights.passes() for _ in range(8)] == [[]] * 8


@pytest.mark.parametrize("seed", range(5))
def test_an_open_alarm_is_not_told_again_as_another(nights: Nights, seed: int) -> None:
    nights.rng = np.random.default_rng(seed)
    for _ in range(8):
        nights.passes()
    nights.level = 90.0
    told = [states(nights.passes()) for _ in range(40)]
    first = told.index(["new"])
    assert told[first + 1 :] == [["open"]] * (39 - first)


def test_an_alarm_ends_where_all_is_better_than_it_was(nights: Nights) -> None:
    for level, count in ((100.0, 8), (90.0, 4), (120.0, 3)):
        nights.level = level
        told = [nights.passes() for _ in range(count)]
    assert states(told[-1]) == ["recovered"]


def test_what_was_zero_can_be_zero_again(nights: Nights) -> None:
    nights.metric, nights.unit, nights.level = "retransmits", 1.0, 0.0
    for _ in range(8):
        assert nights.passes() == []
    nights.level = 0.02
    assert [states(nights.passes()) for _ in range(6)][-1] == ["open"]
    nights.level = 0.0
    assert [states(nights.passes()) for _ in range(4)][-2:] == [["recovered"], []]
    assert [nights.passes() for _ in range(4)] == [[]] * 4


def test_a_change_below_the_least_of_its_metric_is_none(nights: Nights) -> None:
    nights.metric, nights.unit, nights.level = "retransmits", 1.0, 0.0
    for _ in range(8):
        nights.passes()
    nights.level = 0.0004
    assert [nights.passes() for _ in range(6)] == [[]] * 6


def test_what_is_known_does_not_hide_what_is_worse(nights: Nights) -> None:
    known = Acknowledgement(
        point="abc",
        metric="goodput",
        since=date(2026, 1, 1),
        reason="a slower disk",
        expires=date(2026, 2, 1),
    )
    for level, count in ((100.0, 8), (90.0, 4), (70.0, 4)):
        nights.level = level
        told = [nights.passes(known=[known]) for _ in range(count)]
    assert states(told[-1]) == ["acknowledged", "open"]
    assert [finding.alarm for finding in told[-1]] == [False, True]


@pytest.mark.parametrize("least", [0.001, LEAST])
def test_exact_values_that_are_worse_than_an_open_alarm(nights: Nights, least: float) -> None:
    told = []
    for number, value in enumerate([5.0, 5.0, 4.0, 4.0, 3.0, 3.0, 4.0, 5.0, 5.0], 1):
        name = night(number)
        seeds = [1e6 * (value + 0.01 * seed) for seed in range(PAIRS)]
        nights.history.add(name, identity(KERNEL, {}), "x", rows(name, *seeds))
        found = list(judge(nights.history, name, least, [], nights.in_turn, exact=True))
        told.append(states(found))
    assert told == [
        *([], [], ["new"], ["open"]),
        *(["open", "new"], ["open", "open"], ["open", "recovered"], ["recovered"], []),
    ]


def test_exact_values_of_few_seeds_or_of_different_signs_are_no_alarm(nights: Nights) -> None:
    def passes(number: int, *values: float) -> Finding:
        name = night(number)
        nights.history.add(name, identity(KERNEL, {}), "x", rows(name, *values))
        (finding,) = judge(nights.history, name, LEAST, [], nights.in_turn, exact=True)
        return finding

    nights.history.add(night(1), identity(KERNEL, {}), "x", rows(night(1), *[5e6] * 8))
    found = passes(2, *[4e6] * 7)
    assert (found.state, found.reason[:51]) == (
        "not confirmed",
        "7 of 8 seeds have a number before and after: let th",
    )
    found = passes(3, *[4e6] * 6, 6e6, 7e6)
    assert found.state == "not confirmed"
    found = passes(4, *[4e6] * 6, 6e6, 7e6, 5e6)
    assert (found.state, found.reason) == ("not confirmed", "8 seeds do not show it")


def test_an_improvement_is_told_once_and_is_what_is_expected_from_then_on(nights: Nights) -> None:
    for _ in range(8):
        nights.passes()
    nights.level = 110.0
    told = [finding for _ in range(10) for finding in nights.passes()]
    assert [(finding.state, finding.worse) for finding in told] == [("not confirmed", False)] * 2 + [
        ("new", False)
    ]
    nights.level = 100.0
    assert [(f.state, f.worse) for _ in range(3) for f in nights.passes()][-1] == ("new", True)


def test_what_is_known_is_no_alarm_until_it_expires(nights: Nights) -> None:
    known = Acknowledgement(
        point="abc",
        metric="goodput",
        since=date(2026, 1, 1),
        reason="a slower disk",
        expires=date(2026, 1, 12),
    )
    for _ in range(8):
        nights.passes()
    nights.level = 90.0
    told = [states(nights.passes(known=[known])) for _ in range(6)]
    assert told[2:] == [["acknowledged"]] * 2 + [["open"]] * 2


def test_few_nights_say_nothing() -> None:
    assert changes([1.0, 1.0, 2.0, 2.0], Least(LEAST)) == []


def test_an_old_change_is_no_news() -> None:
    values = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998] + [2.0, 2.001, 1.999, 2.0] * 5
    assert [change.index for change in changes(values, Least(LEAST))] == [6]
    assert fresh(values, Least(LEAST)) is None


def test_a_change_is_where_something_else_is_under_test() -> None:
    values = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998, 0.999, 0.9, 0.901, 0.9]
    assert [change.index for change in changes(values, Least(LEAST))] == [7]
    assert [change.index for change in changes(values, Least(LEAST), tested=[6])] == [6]
    assert [change.index for change in changes(values, Least(LEAST), tested=[3])] == [7]


def test_nights_confirm_what_differs_in_all_of_them() -> None:
    values = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998, 0.9, 0.901, 0.899]
    change = Change(6, 1.0, 0.9)
    found = by_nights(values, change)
    assert found is not None
    assert found.low == pytest.approx(-0.1, abs=0.01)
    assert by_nights(values[:-1], change) is None
    assert by_nights([*values[:-1], 1.0], change) is None


@pytest.mark.parametrize(
    ("after", "confirmed"),
    [
        ([0.9, 0.899, 0.901, 0.9, 0.902, 0.898, 0.9, 0.9], True),
        ([0.9, 0.899, 0.901, 0.9, 0.902, 0.898, 0.9], False),  # too few
        ([1.1, 1.101, 1.1, 1.102, 1.099, 1.1, 1.1, 1.1], False),  # the other way
        ([0.9, 0.899, 0.901, 1.1, 0.902, 0.898, 0.9, 0.9], False),  # not all
        ([0.999] * 8, False),  # too little
    ],
)
def test_pairs_confirm_what_differs_in_each_of_them(after: list[float], *, confirmed: bool) -> None:
    pairs = [(1.0, value) for value in after]
    assert (by_pairs(pairs, Least(LEAST), up=False, told="pairs") is not None) == confirmed


def test_from_and_to_zero_only_the_absolute_limit_counts() -> None:
    least = Least(0.01, 0.001)
    assert least.reached(0.0, 0.002)
    assert not least.reached(0.0, 0.0005)
    assert not least.reached(0.0005, 0.0)
    assert not Least(0.01).reached(0.0, 0.0)
    assert not least.reached(1.0, 1.009)


def test_exact_values_need_not_many_nights() -> None:
    values = [5.0, 5.0, 4.0]
    assert fresh(values, Least(LEAST)) is None
    change = fresh(values, Least(LEAST), exact=True)
    assert change is not None
    assert (change.index, change.before, change.after) == (2, 5.0, 4.0)
    assert fresh([5.0, 5.0, 4.95], Least(LEAST), exact=True) is None  # too little to matter


def test_a_series_that_cannot_be_judged_keeps_no_other_from_it(nights: Nights) -> None:
    def broken(*_: object) -> list[tuple[float, float]]:
        raise OSError("disk")

    for _ in range(8):
        nights.passes()
    nights.in_turn, nights.level = broken, 90.0  # type: ignore[method-assign,assignment]
    (finding,) = nights.passes(NEW)
    assert (finding.state, finding.reason) == ("not confirmed", "OSError: disk")
