"""The policer of a direction: its settings, and what it let pass in every time."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbbell.run.of_path import agrees, most_at_once

RATE_BPS = 8_000_000  # a byte per microsecond


def passed(*samples: tuple[int, int]) -> pl.DataFrame:
    """Bytes sent so far, by time in ms."""
    return pl.DataFrame([{"t_ns": ms * 1_000_000, "bytes": sent} for ms, sent in samples])


@pytest.mark.parametrize(
    ("samples", "most"),
    [
        ([(0, 0), (100, 110_000)], 10_000),
        ([(0, 0), (100, 110_000), (200, 210_000)], 10_000),
        ([(0, 0), (100, 50_000), (200, 160_000)], 10_000),  # only the second interval is above
        ([(0, 0), (100, 50_000)], 0),
    ],
)
def test_the_most_that_passed_beyond_the_rate_in_any_time(
    samples: list[tuple[int, int]], most: float
) -> None:
    assert most_at_once(passed(*samples), RATE_BPS) == pytest.approx(most)
    assert most_at_once(passed(samples[0]), RATE_BPS) is None


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100_000)), min_size=2, max_size=40),
    st.integers(1, 10**5),
)
def test_a_token_bucket_never_lets_more_pass(offered: list[tuple[int, int]], burst: int) -> None:
    tokens, sent, now = float(burst), 0, 0
    samples = [(0, 0)]
    for wait_ms, size in offered:
        now += wait_ms
        tokens = min(burst, tokens + wait_ms * 1000)
        passing = min(size, int(tokens))
        tokens, sent = tokens - passing, sent + passing
        samples.append((now, sent))
    most = most_at_once(passed(*samples), RATE_BPS)
    assert most is not None
    assert most <= burst + 1e-3


@pytest.mark.parametrize(("burst", "same"), [(10_000, True), (9_998, True), (9_990, False), (10_010, False)])
def test_a_burst_is_as_asked_within_a_microsecond_of_its_rate(burst: int, same: bool) -> None:
    asked = {"policer": {"rate_bps": 15_000_000, "burst_bytes": 10_000}}
    assert agrees(asked, {"policer": {"rate_bps": 15_000_000, "burst_bytes": burst}}) == same
