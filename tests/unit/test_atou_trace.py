"""The table of what atou's sender wrote of each segment and ACK."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbbell.ingest.atou import parse_trace
from playbooks import REPOSITORY

US, COUNT = st.integers(0, 10**11), st.integers(0, 2**40)
SENT = st.tuples(US, COUNT)
ACKED = st.tuples(US, COUNT, US, COUNT, COUNT)


def test_the_original_s_lines() -> None:
    text = (REPOSITORY / "transports/atou/record/testdata/trace.txt").read_text()
    table = parse_trace(text)
    assert table.rows()[:2] == [
        (408_133_000, "xmt", 258, None, None, None),
        (408_196_000, "ack", 234, 38_062_000, 26, 26),
    ]
    assert table.height == len(text.splitlines())


@given(rows=st.lists(SENT | ACKED))
def test_whatever_was_written_is_read(rows: list[tuple[int, ...]]) -> None:
    text = ""
    expected: list[tuple[object, ...]] = []
    for us, segment, *more in rows:
        text += f"{us / 1e6:.6f} {segment} "
        if more:
            rtt_us, cwnd, ssthresh = more
            text += f"{rtt_us / 1e6:.6f} {cwnd} {ssthresh} ack\n"
            expected.append((us * 1000, "ack", segment, rtt_us * 1000, cwnd, ssthresh))
        else:
            text += "xmt\n"
            expected.append((us * 1000, "xmt", segment, None, None, None))
    assert parse_trace(text).rows() == expected


def test_a_line_that_was_not_ended_is_left_out() -> None:
    assert parse_trace("0.1 1 xmt\n0.2 2 0.").rows() == [(100_000_000, "xmt", 1, None, None, None)]
    assert parse_trace("").is_empty()


@pytest.mark.parametrize(
    "line", ["0.1 one xmt", "soon 1 xmt", "0.1 1 0.2 3 4 ack 5", "0.1 1 0.2 3 4 xmt", ""]
)
def test_what_is_no_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="trace"):
        parse_trace(f"0.1 1 xmt\n{line}\n")
