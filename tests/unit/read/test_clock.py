"""Times at the beginning of lines."""

from __future__ import annotations

import pytest

from dumbbell.read.clock import Clock

AT = 1_795_801_584 * 10**9  # 2026-11-27 17:46:24 UTC


@pytest.mark.parametrize(
    ("line", "unix_ns"),
    [
        ("1795801584", AT),  # date +%s
        ("1795801584.5 ESTAB", AT + 500_000_000),  # date +%s.%N, ts %.s
        ("1795801584500000000", AT + 500_000_000),  # date +%s%N
        ("2026-11-27T17:46:24,500000000+00:00", AT + 500_000_000),  # date -Ins
        ("2026-11-27 18:46:24+01:00", AT),  # date --rfc-3339=seconds
        ("Fri Nov 27 17:46:24 UTC 2026", AT),  # date in the C locale
        ("Fri Nov 27 05:46:24 PM UTC 2026", AT),  # date in en_US.UTF-8
        ("Fri 27 Nov 2026 05:46:24 PM UTC", AT),
        ("Every 1.0s: ss -tin   host: Fri Nov 27 17:46:24 2026", AT),  # watch
    ],
)
def test_dates_of_tools(line: str, unix_ns: int) -> None:
    clock = Clock()
    assert (found := clock.read(line)) is not None
    assert found[0] == unix_ns
    assert clock.dated


def test_times_without_a_date_go_on_over_midnight() -> None:
    clock = Clock()
    times = [clock.read(line) for line in ("23:59:59.9 ESTAB", "00:00:00.1 ESTAB")]
    assert times[0] is not None
    assert times[1] is not None
    assert times[1][0] - times[0][0] == 200_000_000
    assert not clock.dated


def test_times_without_a_year_go_on_over_new_year() -> None:
    clock = Clock()
    times = [clock.read(line) for line in ("Dec 31 23:59:59 ESTAB", "Jan  1 00:00:01 ESTAB")]
    assert times[0] is not None
    assert times[1] is not None
    assert times[1][0] - times[0][0] == 2 * 10**9


@pytest.mark.parametrize("line", ["cubic wscale:7,7", "ESTAB 0 0 192.0.2.1:1 192.0.2.2:2", "", "\t 12:00"])
def test_other_lines_have_no_time(line: str) -> None:
    assert Clock().read(line) is None


def test_number_that_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="hour"):
        Clock().read("25:00:00 ESTAB")
