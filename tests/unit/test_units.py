from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbbell import units
from dumbbell.units import Limit

whole = st.integers(min_value=0, max_value=10**18)
limits = st.one_of(
    st.builds(Limit, whole.map(Decimal), st.sampled_from(["packets", "bytes"])),
    st.builds(Limit, st.decimals(min_value=0, max_value=1000, places=3), st.just("bdp")),
)


@given(whole)
def test_rates_and_durations_survive_rendering(value: int) -> None:
    assert units.parse_rate(units.render_rate(value)) == value
    assert units.parse_duration(units.render_duration(value)) == value


@given(st.floats(min_value=0, max_value=1, allow_nan=False))
def test_shares_are_read_exactly(share: float) -> None:
    assert units.parse_ratio(f"{Decimal(repr(share)) * 100:f}%") == share


@given(limits)
def test_limits_survive_rendering(limit: Limit) -> None:
    assert units.parse_limit(units.render_limit(limit)) == limit


@pytest.mark.parametrize(
    ("text", "bps"), [("100mbit", 100_000_000), ("2.5gbit", 2_500_000_000), ("1kbit", 1000), ("0bit", 0)]
)
def test_rates(text: str, bps: int) -> None:
    assert units.parse_rate(text) == bps


@pytest.mark.parametrize(
    "text", ["100", "100 mbit", "100Mbit", "-1mbit", "1e3bit", "0.5bit", "mbit", "", 100, None]
)
def test_what_is_not_a_rate(text: object) -> None:
    with pytest.raises(ValueError, match="rate"):
        units.parse_rate(text)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (20_120_000, "ns", "20.12 ms"),
        (-1_500, "ns", "-1.5 µs"),
        (99_500_002.04, "bps", "99.5 Mbit/s"),
        (0.0033, "share", "0.33 %"),
        (None, "ns", "-"),
        ({"tso": False, "gso": True}, "", "tso off, gso on"),
        ([], "", "none"),
        (8.68e-7, "share", "less than 0.0001 %"),
        ([0, -5_913_084_049], "ns", "0, -5.913 s"),
        (0, "ns", "0"),
        (28_800_000_000_000, "ns", "28\u202f800 s"),
        (9_999_400_000_000, "ns", "9999 s"),
        (999_960, "bps", "1000 kbit/s"),
        (95_264.0, "bytes", "95\u202f264 bytes"),
        (1234.5, "", "1234.500"),
    ],
)
def test_values_for_people(value: object, unit: str, text: str) -> None:
    assert units.human(value, unit) == text
