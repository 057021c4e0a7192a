"""What receivers reject because of timestamps: against a receiver of RFC 7323, and by hand."""

from __future__ import annotations

import random
import re
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
import pytest
from captures import Segment, frame, stamps, write
from hypothesis import given, settings
from hypothesis import strategies as st

from dumbbell.analysis import Budget, Paws
from dumbbell.analysis.paws import COLUMNS
from dumbbell.ingest.capture import ACK, SEGMENTS, SYN, Capture

MSS = 1000
PAGE = Path(__file__).parent / "fixtures/captures/rapid-onoff-udp.txt"

# --- counters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counted", "residual", "verdict"),
    [
        # UDP at 50, 500 and 800 Mbit/s of UNC's page, where nobody counted duplicates.
        ((23716, 415, 22240, 0), 1061, "overtaken"),
        ((29407, 2017, 19694, 0), 7696, "unexplained"),
        ((7892, 1282, 5389, 0), 1221, "unexplained"),
        # It is why segments are sent again, but not of all of them known why.
        ((303, 20, 250, 33), 0, "overtaken"),
        ((1000, 100, 801, 0), 99, "overtaken"),
        ((1000, 100, 800, 0), 100, "unexplained"),
        ((1000, 100, 1000, 0), -100, "unexplained"),
        # Most was lost, or nothing rejected.
        ((300, 100, 200, 0), 0, "not overtaken"),
        ((301, 100, 201, 0), 0, "overtaken"),
        ((57, 57, 0, 0), 0, "not overtaken"),
        ((900, 60, 0, 840), 0, "not overtaken"),
        ((0, 0, 0, 0), 0, "not overtaken"),
        ((9, 0, 9, 0), 0, "overtaken"),
    ],
)
def test_the_budget_of_retransmissions(counted: tuple[int, ...], residual: int, verdict: str) -> None:
    budget = Budget(*counted)
    assert (budget.residual, budget.verdict) == (residual, verdict)


def test_causes_without_a_retransmission_are_wholly_unexplained() -> None:
    assert Budget(0, 5, 0, 0).unexplained == 1
    assert Budget(0, 0, 0, 0).unexplained == 0


# --- a receiver, segment by segment ---------------------------------------------------------------


@dataclass
class Receiver:
    """Of RFC 7323, with Linux's tick of grace: it acknowledges each segment at once."""

    next: int
    ts_recent: int
    beyond: set[int] = field(default_factory=set)
    rejected: list[tuple[int, int]] = field(default_factory=list)

    def get(self, seq: int, tsval: int) -> None:
        if self.ts_recent - tsval > 1:
            self.rejected.append((seq, tsval))
            return
        if seq <= self.next:
            self.ts_recent = max(self.ts_recent, tsval)
        self.beyond.add(seq)
        while self.next in self.beyond:
            self.beyond.remove(self.next)
            self.next += MSS


def returned(segment: Segment) -> Segment:
    """One the other way, without data."""
    return Segment(
        segment.unix_ns,
        segment.dst,
        segment.dst_port,
        segment.src,
        segment.src_port,
        segment.ack,
        segment.seq,
    )


def transfer(
    connection: Segment, seq: int, tsval: int, drawn: random.Random, *, first: bool, lost: float, count: int
) -> tuple[list[Segment], int]:
    """Segments and acknowledgments before a receiver, and how many it rejected.

    A queue of some segments is sent in order, or with retransmissions ``first``; some are ``lost`` before the
    capture. The sender sends again what lies before three that came, as often as it has to.
    """
    receiver = Receiver(seq, tsval)
    captured: list[Segment] = []
    queue: deque[tuple[int, int]] = deque()
    again: deque[tuple[int, int]] = deque()
    new, now = seq, tsval
    gone: dict[int, int] = {}
    end = seq + count * MSS
    for _ in range(100 * count):
        if receiver.next == end:
            break
        now += drawn.choice([0, 0, 1, 3])
        while new < end and len(queue) < 12:
            queue.append((new, now))
            now += drawn.choice([0, 1])
            new += MSS
        # Of the missing, those that are not on the way.
        waiting = {of for of, _ in (*queue, *again)}
        missing = [s for s in range(receiver.next, new, MSS) if s not in receiver.beyond and s not in waiting]
        for of in missing:
            if len([s for s in receiver.beyond if s > of]) >= 3 or not queue:
                (again if first else queue).append((of, now))
        if not queue and not again:
            continue
        of, then = (again or queue).popleft()
        if drawn.random() < lost and gone.get(of, 0) < 3:
            gone[of] = gone.get(of, 0) + 1
            continue
        at = connection.unix_ns + 1000 * len(captured)
        captured.append(replace(connection, unix_ns=at, seq=of, payload=MSS, options=stamps(then)))
        receiver.get(of, then)
        back = replace(returned(connection), unix_ns=at + 1, ack=receiver.next, options=stamps(7))
        captured.append(back)
    assert receiver.next == end, "the sender of this test never gets done"
    return captured, len(receiver.rejected)


def frames_of(segments: list[Segment]) -> pl.DataFrame:
    rows = [
        (
            *(i, s.unix_ns, s.src, s.src_port, s.dst, s.dst_port, s.seq % 2**32, s.ack % 2**32),
            *(s.flags, s.payload),
            *(int.from_bytes(s.options[at : at + 4], "big") if s.options else None for at in (4, 8)),
            False,
        )
        for i, s in enumerate(segments)
    ]
    return pl.DataFrame(rows, schema=SEGMENTS, orient="row")


def fed(segments: list[Segment], block: int) -> Paws:
    paws, rows = Paws(), frames_of(segments)
    for begin in range(0, rows.height, block):
        paws.feed(rows[begin : begin + block])
    return paws


FORWARD = Segment(10**18, "198.18.1.11", 40000, "198.18.2.11", 5201, 0, 2**31)
V6 = replace(FORWARD, src="2001:db8::1", dst="2001:db8::2")
NEAR = st.one_of(st.integers(0, 2**32 - 1), st.integers(2**32 - 20 * MSS, 2**32 - 1))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    flows=st.tuples(
        *[st.tuples(NEAR, st.one_of(NEAR, st.integers(2**32 - 40, 2**32 - 1)), st.booleans())] * 3
    ),
    lost=st.sampled_from([0.0, 0.02, 0.1, 0.3]),
    block=st.integers(1, 60),
)
def test_as_many_are_found_as_receivers_rejected(
    seed: int,
    flows: tuple[tuple[int, int, bool], ...],
    lost: float,
    block: int,
) -> None:
    """Of three connections in one capture, in whatever blocks it is read; numbers may wrap."""
    drawn = random.Random(seed)
    ways = [FORWARD, V6, replace(FORWARD, src_port=40001)]
    captured, expected = [], {}
    for way, (seq, tsval, jumps) in zip(ways, flows, strict=True):
        segments, count = transfer(way, seq, tsval, drawn, first=jumps, lost=lost, count=40)
        captured.append(deque(segments))
        if count:
            expected[way.src, way.src_port, way.dst, way.dst_port] = count
        assert jumps or not count
    merged = []
    while left := [segments for segments in captured if segments]:
        merged.append(drawn.choice(left).popleft())
    paws = fed(merged, block)
    assert dict(paws.rejected) == expected
    assert paws.steps.total() == sum(expected.values())
    assert all(step > 1 for step in paws.steps)
    assert paws.segments == sum(s.payload > 0 for s in merged)
    assert paws.backwards == 0 or any(jumps for _, _, jumps in flows)
    assert paws.backwards >= paws.rejected.total()
    assert paws.verdict == "not overtaken" or expected


def test_a_queue_in_order_never_goes_back() -> None:
    drawn = random.Random(1)
    segments, rejected = transfer(FORWARD, 0, 0, drawn, first=False, lost=0.1, count=200)
    paws = fed(segments, 100)
    assert (rejected, paws.rejected.total(), paws.backwards, paws.first) == (0, 0, 0, None)
    assert (paws.again > 0, paws.verdict) == (True, "not overtaken")


def test_overtaken_is_what_is_sent_again_for_that_reason_most() -> None:
    """By the rule of the budget: more than three for each that was not rejected."""
    lost = [data(1000, 9), acked(2000), *(data(seq, 10) for seq in range(3000, 9000, 1000)), acked(2000)]
    overtaken = [*lost, data(2000, 30), *(data(seq, 11) for seq in (9000, 10000, 11000)), acked(9000)]
    came_again = [data(seq, 31) for seq in (9000, 10000, 11000)]
    for count, verdict in ((2, "not overtaken"), (3, "overtaken")):
        paws = fed([*overtaken, *came_again[:count]], 99)
        assert (paws.again, paws.rejected.total(), paws.verdict) == (1 + count, count, verdict)


def test_without_acknowledgments_it_is_not_known() -> None:
    segments, rejected = transfer(FORWARD, 5, 5, random.Random(4), first=True, lost=0.1, count=100)
    assert rejected > 20
    assert fed(segments, 50).verdict == "overtaken"
    one_way = fed([segment for segment in segments if segment.payload], 50)
    assert (one_way.rejected.total(), one_way.verdict) == (0, "unexplained")
    in_order, _ = transfer(FORWARD, 5, 5, random.Random(4), first=False, lost=0.1, count=100)
    one_way = fed([segment for segment in in_order if segment.payload], 50)
    assert (one_way.backwards, one_way.verdict) == (0, "not overtaken")


def test_one_that_was_overtaken_is_found_beside_many_that_were_lost() -> None:
    """Also when its ports serve another connection later."""
    other = replace(FORWARD, src_port=40001)
    overtaken, _ = transfer(FORWARD, 5, 5, random.Random(4), first=True, lost=0.02, count=100)
    lost, _ = transfer(other, 5, 5, random.Random(4), first=False, lost=0.3, count=2000)
    anew = [replace(data(900, 7), payload=0, flags=SYN), data(901, 8), acked(1901)]
    paws = fed([*overtaken, *lost, *anew], 50)
    assert paws.again > 5 * paws.rejected.total() > 0
    assert paws.verdict == "overtaken"


# --- by hand --------------------------------------------------------------------------------------


def data(seq: int, tsval: int) -> Segment:
    return replace(FORWARD, seq=seq, options=stamps(tsval), payload=MSS)


def acked(ack: int) -> Segment:
    return replace(returned(FORWARD), ack=ack, options=stamps(1))


HOLE = [data(1000, 9), acked(2000), data(3000, 10), acked(2000)]


def test_a_segment_counts_once_the_same_data_comes_again() -> None:
    overtaken = [*HOLE, data(2000, 22), data(4000, 10), acked(4000)]
    assert fed(overtaken, 99).rejected.total() == 0
    again = [*overtaken, data(4000, 23)]
    paws = fed(again, 99)
    assert (paws.rejected.total(), dict(paws.steps), paws.backwards) == (1, {12: 1}, 1)
    assert paws.first
    assert (paws.first.by_at, paws.first.at) == (4, 5)  # places in the list
    for block in range(1, len(again)):
        part = fed(again, block)
        assert (part.first, part.steps, part.rejected) == (paws.first, paws.steps, paws.rejected)


def test_what_was_acknowledged_before_it_came_again_was_accepted() -> None:
    segments = [*HOLE, data(2000, 22), data(4000, 10), acked(5000), data(4000, 23)]
    assert fed(segments, 99).rejected.total() == 0


def test_a_copy_with_the_same_timestamp_is_no_retransmission() -> None:
    segments = [*HOLE, data(2000, 22), data(4000, 10), data(4000, 10)]
    assert fed(segments, 99).rejected.total() == 0


def test_a_tick_is_none() -> None:
    segments = [*HOLE, data(2000, 11), data(4000, 10), acked(4000), data(4000, 23)]
    assert fed(segments, 99).rejected.total() == 0


def test_what_comes_out_of_order_leaves_the_timestamp() -> None:
    """Segment 3000, ahead of a hole, is newer, but the receiver does not take its timestamp."""
    segments = [data(1000, 9), acked(2000), data(3000, 30), acked(2000), data(4000, 20), data(4000, 40)]
    assert fed(segments, 99).rejected.total() == 0


def test_missing_packets_invent_nothing() -> None:
    """Whichever packets a capture has missed, it has no more than there were."""
    drawn = random.Random(4)
    segments, rejected = transfer(FORWARD, 5, 5, drawn, first=True, lost=0.1, count=100)
    assert rejected > 20
    for share in (0.05, 0.3, 0.9):
        seen = [segment for segment in segments if drawn.random() > share]
        assert fed(seen, 50).rejected.total() <= rejected


def test_without_timestamps_there_is_nothing_to_reject() -> None:
    segments, _ = transfer(FORWARD, 5, 5, random.Random(4), first=True, lost=0.1, count=50)
    paws = fed([replace(segment, options=b"") for segment in segments], 50)
    assert (paws.segments, paws.rejected.total(), paws.backwards) == (0, 0, 0)


def test_ports_that_serve_another_connection() -> None:
    """Its timestamps and numbers have nothing to do with those before."""
    before = [*HOLE, data(2000, 22), acked(4000)]
    syn = replace(data(900, 2**31 - 100), payload=0, flags=SYN)
    answer = replace(acked(901), flags=SYN | ACK)
    after = [syn, answer, data(901, 2**31 - 100), acked(1901), data(1901, 2**31 - 99), data(1901, 2**31 - 98)]
    for block in (1, 2, 5, 99):
        assert fed([*before, *after], block).rejected.total() == 0


def test_the_original_trace(tmp_path: Path) -> None:
    """Four lines that its authors show, in a capture with what must have been around them."""
    pattern = (
        r"(\d+)\.(\d+) IP (\S+)\.(\d+) > (\S+)\.(\d+):.* seq (\d+):(\d+), ack (\d+).* val (\d+) ecr (\d+)"
    )
    lines = PAGE.read_text().splitlines()
    found = [re.match(pattern, line) for line in lines]
    shown = [
        Segment(
            int(m[1]) * 10**9 + int(m[2]) * 1000,
            *(m[3], int(m[4]), m[5], int(m[6])),
            seq=int(m[7]),
            ack=int(m[9]),
            payload=int(m[8]) - int(m[7]),
            options=stamps(int(m[10]), int(m[11])),
        )
        for m in found
        if m
    ]
    assert len(shown) == 4
    first = shown[0]
    duplicate = replace(returned(first), unix_ns=first.unix_ns - 1000, options=stamps(48164441, 68581238))
    again = [replace(s, unix_ns=s.unix_ns + 10**7, options=stamps(68581261)) for s in shown[2:]]
    frames = [(s.unix_ns, frame(s)) for s in (duplicate, *shown, *again)]
    capture = Capture.open(write(tmp_path / "dag.pcap", frames, nano=False))
    paws = Paws()
    for segments in capture.segments():
        paws.feed(segments)
    assert dict(paws.steps) == {12: 2}
    assert paws.first
    assert [capture.text(paws.first.by_at), capture.text(paws.first.at)] == [lines[0], lines[2]]
    assert dict(paws.rejected) == {("192.168.135.5", 43287, "192.168.134.9", 5678): 2}


def test_columns_are_those_of_captures() -> None:
    assert set(COLUMNS) <= set(SEGMENTS)
