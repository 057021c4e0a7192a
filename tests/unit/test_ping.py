"""What ping prints: numbers of 16 bits, and replies that come again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.plans import planned

from dumbbell.plan import PingAction
from dumbbell.run.content import ping_duplicates, ping_replies, ping_rtts_ns
from dumbbell.validity.answers import ping_faults

# Of iputils 20221126 on a loopback whose responder left out one reply, and sent others twice and three times.
DUPLICATES = Path(__file__).parent / "fixtures" / "ping" / "duplicates.txt"


def test_a_reply_that_comes_again_is_no_other_reply(tmp_path: Path) -> None:
    replies = ping_replies(DUPLICATES)
    assert [reply.number for reply in replies] == [1, 2, 3, 5, 6, 7, 8]
    rtts_us = [727, 205, 234, 235, 185, 156, 176]
    assert [reply.rtt_ns for reply in replies] == [1000 * rtt for rtt in rtts_us]
    assert replies[0].sent_unix_ns == 1_795_675_808_923_028_000 - 727_000
    assert ping_rtts_ns(DUPLICATES) == [1000 * rtt for rtt in rtts_us[1:]]
    assert ping_duplicates(DUPLICATES) == 3
    missing = tmp_path / "none.txt"
    assert (ping_replies(missing), ping_rtts_ns(missing), ping_duplicates(missing)) == ([], [], 0)


def test_what_ping_prints_of_ipv6_has_no_fault() -> None:
    path = DUPLICATES.with_name("ipv6.txt")
    ping = PingAction(at_ns=0, kind="ping", name="p", dst="fd00:2::21", count=31, interval_ns=50_000_000)
    assert list(ping_faults(path, ping, None, planned().phase("calibration"), None)) == []
    other = ping.model_copy(update={"dst": "fd00:2::2"})
    faults = list(ping_faults(path, other, None, planned().phase("calibration"), None))
    assert faults[-1] == "ping did not come to its end"


@settings(deadline=None)
@given(
    first=st.integers(1, 2**16 - 1),
    steps=st.lists(st.tuples(st.integers(-500, 2**15 - 1), st.integers(0, 2)), max_size=60),
)
def test_numbers_go_on_where_16_bits_end(
    tmp_path_factory: pytest.TempPathFactory, first: int, steps: list[tuple[int, int]]
) -> None:
    """Whatever is lost, late or doubled, but for gaps of half of all numbers."""
    numbers, lines, again_count = [first], [], 0
    for step, _ in steps:
        numbers.append(max(1, numbers[-1] + step))
    for number, again in zip(numbers, [0, *(again for _, again in steps)], strict=True):
        line = f"[{1.5 + number:.6f}] 64 bytes from ::1: icmp_seq={number % 2**16} ttl=64 time=500 ms"
        lines += [line, *[f"{line} (DUP!)"] * again]
        again_count += again
    file = tmp_path_factory.mktemp("ping") / "ping.txt"
    file.write_text("\n".join(lines) + "\n")
    replies = ping_replies(file)
    assert [(reply.number, reply.sent_unix_ns) for reply in replies] == [
        (number, (1 + number) * 10**9) for number in numbers
    ]
    assert len(ping_rtts_ns(file)) == sum(number > 1 for number in numbers)
    assert ping_duplicates(file) == again_count
