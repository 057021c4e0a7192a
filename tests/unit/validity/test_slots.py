"""Packets leave in slots: seen in captures, and not where they do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import captures
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import T0_UNIX_NS, write_run

from dumbbell import analysis
from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check
from dumbbell.run.content import Run
from dumbbell.validity import slots

MS = 10**6
SLOT_NS = 10 * MS
SCENARIO = {
    "name": "slots",
    "title": "One flow, whose ACKs leave in slots",
    "duration": "2s",
    "path": {
        way: {"rate": "20mbit", "delay": "10ms", "queue": {"kind": "pfifo", "limit": "2bdp"}} | more
        for way, more in (("forward", {}), ("reverse", {"slot": "10ms"}))
    },
    "flows": {"flow": {"kind": "iperf3_tcp", "from": "senders[0]", "to": "receivers[0]"}},
    "sampling": {"capture": True},
}


def left(arrivals_ns: list[int], slot_ns: int) -> list[int]:
    """When a netem of this slot, without a delay, sends packets that arrive at these times (sch_netem.c)."""
    times: list[int] = []
    slot_at = 0
    for at in arrivals_ns:
        if slot_at < at:
            slot_at = max(slot_at + slot_ns, at) if times and slot_at + slot_ns > at else at + slot_ns
        times.append(max(slot_at, at))
    return times


@given(st.lists(st.integers(0, 3 * SLOT_NS), min_size=1, max_size=200))
def test_what_netem_sends_is_in_slots(gaps: list[int]) -> None:
    arrivals = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    outside, slots = analysis.out_of_slots(pl.Series(left(arrivals, SLOT_NS)), SLOT_NS)
    assert outside == 0
    assert 1 <= slots <= len(gaps)


@pytest.mark.parametrize(
    ("times_ms", "outside", "slots"),
    [
        ([], 0, 0),
        ([0, 0, 1, 10, 12, 30], 0, 3),
        ([0, 1, 2, 3, 4], 2, 1),  # a stream: what is later than 2.5 ms
        ([0, 5, 10], 2, 3),  # each 5 ms after the one before it
        ([0, 7, 7, 17], 2, 3),
        ([0, 7.5, 17.5], 0, 3),
    ],
)
def test_packets_outside_of_slots(times_ms: list[float], outside: int, slots: int) -> None:
    times = pl.Series([round(ms * MS) for ms in times_ms], dtype=pl.Int64)
    assert analysis.out_of_slots(times, SLOT_NS) == (outside, slots)


@pytest.fixture(scope="module")
def _run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slots")
    (scenario := folder / "slots.yml").write_text(json.dumps(SCENARIO))
    write_run(folder / "run", scenario)
    return folder / "run"


@pytest.fixture
def of(_run_dir: Path, tmp_path: Path) -> Asked:
    return Asked(Run.open(Path(shutil.copytree(_run_dir, tmp_path / "run"))), {})


def write_captures(of: Asked, every_ms: float) -> None:
    """ACKs leave the router in twos, this far apart; data segments come by the same device."""
    (flow,) = of.measurement.flows
    there = (flow.src, flow.client_port, flow.dst, flow.server_port)
    back = (*there[2:], *there[:2])
    t0 = T0_UNIX_NS["measurement"]
    acks = [
        captures.Segment(t0 + round(i // 2 * every_ms * MS) + i % 2, *back, 1, 1000 * i) for i in range(100)
    ]
    data = [captures.Segment(t0 + i * MS, *there, 1000 * i, 1, payload=1000) for i in range(400)]
    seen = sorted((*acks, *data), key=lambda segment: segment.unix_ns)
    capture = of.run.raw("router", "measurement", "capture-vec1.pcap")
    captures.write(capture, [(segment.unix_ns, captures.frame(segment)) for segment in seen])


def reverse(of: Asked) -> Check:
    """The check of the direction of the ACKs; the other one has none."""
    assert of.point.path is not None
    assert list(slots.checks(of, "router", "forward", of.point.path)) == []
    (check,) = slots.checks(of, "router", "reverse", of.point.path)
    return check


def test_acks_that_leave_in_slots(of: Asked) -> None:
    write_captures(of, 10)
    check = reverse(of)
    assert (check.subject, check.measured, check.ok) == ("router reverse", 0, True)


def test_acks_that_leave_when_they_come(of: Asked) -> None:
    write_captures(of, 1)
    assert reverse(of).reason == "share of packets that left outside of slots is 94 %, more than 1 %"


def test_a_capture_that_cannot_be_read(of: Asked) -> None:
    of.run.raw("router", "measurement", "capture-vec1.pcap").write_bytes(b"pcap")
    check = reverse(of)
    assert not check.ok
    assert check.reason.startswith("share of packets that left outside of slots not known: ")
