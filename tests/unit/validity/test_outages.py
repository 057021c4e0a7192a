"""Nothing leaves a bottleneck in an outage, by the counters of its queue."""

from __future__ import annotations

import polars as pl
import pytest

from dumbbell.validity.outages import faults_of

S = 10**9
LATE_NS = S // 20


def queue(leaves_until_s: float, again_s: float, *, waiting: bool = True) -> pl.DataFrame:
    """A queue of 50 packets each 100 ms, that sends nothing between these times, sampled each 100 ms."""
    rows, left = [], 0
    for tick in range(100):
        at_s = tick / 10
        if tick and not leaves_until_s < at_s <= again_s:
            left += 50
        rows.append({"t_ns": round(at_s * S), "packets": left, "qlen_packets": 30 if waiting else 0})
    return pl.DataFrame(rows)


def faults(rows: pl.DataFrame) -> list[str]:
    """Of an outage from 2 to 4 s."""
    return list(faults_of(rows, 2 * S + 1, 4 * S, LATE_NS))


def test_an_outage_as_asked() -> None:
    assert faults(queue(2, 4)) == []
    assert faults(queue(2, 9, waiting=False)) == []  # nobody sent


def test_the_packet_under_way_may_leave() -> None:
    rows = queue(2, 4)
    more = pl.when(pl.col("t_ns") >= 22 * S // 10).then(pl.col("packets") + 1).otherwise("packets")
    assert faults(rows.with_columns(packets=more)) == []


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (queue(2.5, 4), "200 packets left its bottleneck, and no more than the one under way may"),
        (queue(2, 3.5), "200 packets left its bottleneck"),
        (queue(2, 4.2), "its bottleneck still sent nothing at 4.05 s, while packets waited: asked 4 s"),
        (queue(2, 4).filter(pl.col("t_ns") < 21 * S // 10), "what left its bottleneck is not known"),
    ],
)
def test_an_outage_that_was_not(rows: pl.DataFrame, fault: str) -> None:
    (found,) = faults(rows)
    assert found.startswith(fault)


def test_nobody_closed_it() -> None:
    (found,) = faults_of(queue(2, 4), None, 4 * S, LATE_NS)
    assert found == "when its bottleneck was closed is not known: the agent says nothing of it"
