"""When somebody is told that something has changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np
import pytest

from dumbbell.nightly.changes import changes, confirmed, fresh
from dumbbell.nightly.history import Series
from dumbbell.nightly.judge import Acknowledgement, Finding, NotMeasured, judge
from nightly.nights import KERNEL, LEAST, Nights, night, rows


def states(found: Sequence[Finding]) -> list[str]:
    return [finding.state for finding in found]


def test_nights_that_are_alike_say_nothing(nights: Nights) -> None:
    assert [nights.passes() for _ in range(15)] == [[]] * 15


def test_a_regression_is_found_confirmed_and_stays_open_until_it_is_undone(nights: Nights) -> None:
    for _ in range(8):
        assert nights.passes() == []
    nights.level = 90.0
    told = [nights.passes() for _ in range(4)]
    first = next(i for i, found in enumerate(told) if found)
    (finding,) = told[first]
    assert (finding.state, finding.worse, finding.alarm) == ("new", True, True)
    assert finding.since == night(9)
    assert finding.effect == pytest.approx(-0.1, abs=0.01)
    assert nights.asked == 1
    assert [states(found) for found in told[first + 1 :]] == [["open"]] * (3 - first)
    assert all(finding.alarm for found in told for finding in found)
    nights.level = 100.0
    (finding,) = nights.passes()
    assert (finding.state, finding.alarm) == ("recovered", False)
    assert [nights.passes() for _ in range(10)] == [[]] * 10


def test_a_worse_change_is_told_beside_an_open_alarm(nights: Nights) -> None:
    for _ in range(8):
        nights.passes()
    nights.level = 90.0
    while not nights.passes():
        pass
    nights.level = 70.0
    told = [nights.passes() for _ in range(4)]
    assert all(found[0].state == "open" and found[0].before == pytest.approx(100, rel=0.01) for found in told)
    first = next(found for found in told if len(found) > 1)
    assert states(first) == ["open", "new"]
    assert (first[1].worse, first[1].alarm) == (True, True)
    assert first[1].effect == pytest.approx(70 / 90 - 1, abs=0.01)
    assert states(told[-1]) == ["open", "open"]
    nights.level = 90.0
    assert states(nights.passes()) == ["open", "recovered"]
    assert states(nights.passes()) == ["open"]
    nights.level = 100.0
    assert states(nights.passes()) == ["recovered"]
    assert [nights.passes() for _ in range(8)] == [[]] * 8


def test_a_night_that_is_judged_again_says_the_same(nights: Nights) -> None:
    for level, count in ((100.0, 8), (90.0, 3), (70.0, 4), (100.0, 1), (110.0, 4)):
        nights.level = level
        for _ in range(count):
            told = nights.passes()
            again = list(judge(nights.history, night(nights.count), LEAST, [], nights.again))
            assert again == told


def test_all_of_several_alarms_end_where_the_first_began(nights: Nights) -> None:
    for level, count in ((100.0, 8), (90.0, 4), (70.0, 4)):
        nights.level = level
        told = [nights.passes() for _ in range(count)]
    assert states(told[-1]) == ["open", "open"]
    nights.level = 100.0
    assert states(nights.passes()) == ["recovered", "recovered"]
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
    for level, count in ((100.0, 8), (90.0, 4)):
        nights.level = level
        told = [nights.passes() for _ in range(count)]
    assert states(told[-1]) == ["open"]
    nights.level = 120.0
    assert states(nights.passes()) == ["recovered"]


def test_what_was_zero_can_be_zero_again(nights: Nights) -> None:
    nights.metric, nights.level = "retransmits", 0.0
    for _ in range(8):
        assert nights.passes() == []
    nights.level = 0.02
    told = [states(nights.passes()) for _ in range(4)]
    assert told[-1] == ["open"]
    nights.level = 0.01
    assert states(nights.passes()) == ["open"]
    nights.level = 0.0
    assert states(nights.passes()) == ["recovered"]
    assert [nights.passes() for _ in range(4)] == [[]] * 4


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


@pytest.mark.parametrize("least", [0.0, LEAST])
def test_exact_values_that_are_worse_than_an_open_alarm(nights: Nights, least: float) -> None:
    told = []
    for number, value in enumerate([5.0, 5.0, 4.0, 4.0, 3.0, 3.0, 4.0, 5.0, 5.0], 1):
        name = night(number)
        nights.history.add(name, KERNEL, "x", rows(name, value))
        told.append(states(list(judge(nights.history, name, least, [], lambda _, v=value: [v], exact=True))))  # type: ignore[misc]
    assert told == [
        *([], [], ["new"], ["open"]),
        *(["open", "new"], ["open", "open"], ["open", "recovered"], ["recovered"], []),
    ]


def test_an_improvement_is_told_once_and_is_what_is_expected_from_then_on(nights: Nights) -> None:
    for _ in range(8):
        nights.passes()
    nights.level = 110.0
    told = [finding for _ in range(10) for finding in nights.passes()]
    assert [(finding.state, finding.worse) for finding in told] == [("new", False)]
    nights.level = 100.0
    assert [(f.state, f.worse) for _ in range(4) for f in nights.passes()][:1] == [("new", True)]


def test_what_is_not_there_when_it_is_measured_again_is_no_alarm(nights: Nights) -> None:
    for _ in range(8):
        nights.passes()
    nights.level = 90.0
    nights.again = lambda _: [100.1, 99.8, 100.3, 99.9, 100.0, 100.2, 99.7, 100.4]  # type: ignore[method-assign]
    told = [state for _ in range(3) for state in states(nights.passes())]
    assert told
    assert set(told) == {"not confirmed"}
    assert nights.history.alarms() == []


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
    assert {state for found in told[:4] for state in found} == {"acknowledged"}
    assert told[4] == ["open"]


def test_few_nights_say_nothing() -> None:
    assert changes([1.0, 1.0, 2.0, 2.0], LEAST) == []


def test_an_old_change_is_no_news() -> None:
    values = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998] + [2.0, 2.001, 1.999, 2.0] * 5
    assert [change.index for change in changes(values, LEAST)] == [6]
    assert fresh(values, LEAST) is None


def test_what_is_measured_again_must_go_the_same_way() -> None:
    values = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998, 0.9, 0.901]
    (change,) = changes(values, LEAST)
    assert confirmed(values, change, [0.9, 0.899, 0.901, 0.9, 0.902, 0.898, 0.9, 0.9], LEAST)
    assert not confirmed(values, change, [1.1, 1.101, 1.1, 1.102, 1.099, 1.1, 1.1, 1.1], LEAST)
    assert not confirmed(values, change, [1.0, 0.999, 1.001, 1.0, 1.0, 1.0, 0.998, 1.0], LEAST)


def test_exact_values_need_neither_many_nights_nor_chance() -> None:
    values = [5.0, 5.0, 4.0]
    assert fresh(values, LEAST) is None
    change = fresh(values, LEAST, exact=True)
    assert change is not None
    assert (change.index, change.before, change.after) == (2, 5.0, 4.0)
    assert confirmed(values, change, [4.0], LEAST, exact=True)
    assert not confirmed(values, change, [5.0], LEAST, exact=True)
    assert fresh([5.0, 5.0, 4.95], LEAST, exact=True) is None  # too little to matter


def test_few_values_confirm_nothing() -> None:
    values = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998, 0.9, 0.901]
    (change,) = changes(values, LEAST)
    assert not confirmed(values, change, [0.9], LEAST)


def test_what_was_not_measured_again_is_not_confirmed_and_does_not_end(nights: Nights) -> None:
    def refused(_: Series) -> Sequence[float]:
        raise NotMeasured("no time")

    measure = nights.again
    for _ in range(8):
        nights.passes()
    nights.level, nights.again = 90.0, refused  # type: ignore[method-assign]
    told = [finding for _ in range(3) for finding in nights.passes()]
    assert {(finding.state, finding.reason) for finding in told} == {
        ("not confirmed", "it was not measured again: no time")
    }
    nights.again = measure  # type: ignore[method-assign]
    assert states(nights.passes()) == ["new"]
    nights.level, nights.again = 100.0, refused  # type: ignore[method-assign]
    (finding,) = nights.passes()
    assert (finding.state, finding.reason) == ("open", "it was not measured again: no time")


def test_a_series_that_cannot_be_judged_keeps_no_other_from_it(nights: Nights) -> None:
    def broken(_: Series) -> Sequence[float]:
        raise OSError("disk")

    nights.again = broken  # type: ignore[method-assign]
    for level in (100.0,) * 8 + (90.0,) * 3:
        nights.level = level
        told = nights.passes()
    assert [(finding.state, finding.reason) for finding in told] == [("not confirmed", "OSError: disk")]
