"""Goodput of UDP flows of iperf3 over windows, from what a server of iperf3 3.12 counted.

The report and the events are those of an agent on loopback: a client of 8 Mbit/s from 5 to 8 s of a phase,
launched 4 s before; so the first three of its server's intervals are zeros.
"""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from damage import edit
from hypothesis import given
from hypothesis import strategies as st
from synthetic import T0_UNIX_NS, write_run

from dumbbell import analysis
from dumbbell.execution.collect import collect
from dumbbell.facts.check import Check
from dumbbell.run.record import read_json, read_jsonl

S = 10**9
FIXTURES = Path(__file__).parent / "fixtures" / "iperf3"
SCENARIO = """\
name: late
title: UDP of iperf3 that does not last the whole run
duration: 9s
path:
  forward: {rate: 100mbit, delay: 1ms, queue: {kind: pfifo, limit: 1bdp}}
flows:
  late: {kind: iperf3_udp, from: "senders[0]", to: "receivers[0]", rate: 8mbit, start: 5s, duration: 3s}
"""
RECEIVED = 2_981_888  # sum_received of the report


@pytest.fixture(scope="module")
def _written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scenario = tmp_path_factory.mktemp("scenario") / "late.yml"
    scenario.write_text(SCENARIO)
    run_dir = tmp_path_factory.mktemp("results") / "run"
    write_run(run_dir, scenario)
    events_of(run_dir).unlink()  # the agent's own follow
    shutil.copy(FIXTURES / "udp-server.json", report(run_dir))
    (start,) = (e for e in read_jsonl(FIXTURES / "events.jsonl") if e["event"] == "start_received")
    later_ns = T0_UNIX_NS["measurement"] - start["t0_unix_ns"]
    events = [e | {"unix_ns": e["unix_ns"] + later_ns} for e in read_jsonl(FIXTURES / "events.jsonl")]
    with events_of(run_dir).open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    return run_dir


@pytest.fixture
def run_dir(_written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(_written, tmp_path / "run"))


def report(run_dir: Path) -> Path:
    return run_dir / "raw/receiver1/measurement/iperf3-late-server.json"


def events_of(run_dir: Path) -> Path:
    return run_dir / "raw/sender1/measurement/events.jsonl"


def measured(run_dir: Path, *windows: tuple[float, float], metric: str = "goodput") -> list[Check]:
    """Checks of one metric over each window, in seconds."""
    bound: dict[str, Any] = {"metric": metric, "flows": ["late"], "min": None, "max": 1e15}
    bounds = [bound | {"window_ns": [round(start * S), round(end * S)]} for start, end in windows]
    edit(run_dir / "plan.json", lambda plan: plan["points"][0].update(expect=bounds))
    return [check for check in collect(run_dir, None).checks if check.name == metric]


def test_goodput_is_that_of_the_window(run_dir: Path) -> None:
    before, own, longer, after = measured(run_dir, (0, 5), (5, 8), (0, 9), (8.5, 9))
    assert before.measured == 0
    assert own.measured == pytest.approx(RECEIVED * 8 / 3)
    assert longer.measured == pytest.approx(RECEIVED * 8 / 9)
    assert after.measured == 0


def test_utilisation_is_that_of_the_window(run_dir: Path) -> None:
    before, longer = measured(run_dir, (0, 5), (0, 9), metric="utilisation")
    assert before.measured == 0
    assert longer.measured == pytest.approx(RECEIVED * 8 / 9 / 100e6)


def test_intervals_count_from_when_the_server_began(run_dir: Path) -> None:
    """Its client had its word 1.0495 s after t0: the interval from 5.0473 to 6.0001 is 6.0968 to 7.0496 s."""
    (one,) = measured(run_dir, (6.0968, 7.0496))
    assert one.measured == pytest.approx(1_114_112 * 8 / 0.9528, rel=2e-3)
    # And the one that held the flow's first 50 ms had 2 datagrams of 32 KiB in them.
    (first,) = measured(run_dir, (5, 5.0496))
    assert first.measured == pytest.approx(65_536 * 8 / 0.0496, rel=2e-2)


def test_loss_is_that_of_the_window(run_dir: Path) -> None:
    one, later, longer = measured(run_dir, (6.0968, 7.0496), (7.1, 7.9), (5, 8), metric="loss")
    assert one.measured == pytest.approx(1 / 35, rel=0.01)  # the server missed one of 35 there
    assert later.measured == 0
    assert longer.measured == pytest.approx(1 / 92)


def test_a_client_that_was_not_held_had_the_word_of_its_server_at_its_first_data(run_dir: Path) -> None:
    lines = [
        event | ({"held": False, "reason": "not seen"} if event["event"] == "flow_held" else {})
        for event in read_jsonl(events_of(run_dir))
    ]
    events_of(run_dir).write_text("".join(json.dumps(event) + "\n" for event in lines))
    # The server began its test with the data, then.
    edit(report(run_dir), lambda told: told.update(intervals=told["intervals"][4:]))

    def from_zero(told: Any) -> None:
        for interval in told["intervals"]:
            interval["sum"]["start"] -= 4.000154
            interval["sum"]["end"] -= 4.000154

    edit(report(run_dir), from_zero)
    (own,) = measured(run_dir, (5, 8))
    assert own.measured == pytest.approx((RECEIVED - 65_536) * 8 / 3, rel=0.02)  # which ends 35 ms early


def test_no_number_where_the_intervals_do_not_cover_the_flow(run_dir: Path) -> None:
    edit(report(run_dir), lambda told: told.update(intervals=told["intervals"][:-1]))  # up to 7.05 s
    before, early, own, longer = measured(run_dir, (0, 5), (5, 7), (5, 8), (0, 9))
    assert before.measured == 0
    assert early.measured > 0
    for check in (own, longer):
        assert (check.kind, check.reason) == ("validity", "goodput not known: it was not sampled throughout")


def test_no_number_where_nothing_tells_when_the_server_began(run_dir: Path) -> None:
    lines = [event for event in read_jsonl(events_of(run_dir)) if not event["event"].startswith("flow_")]
    events_of(run_dir).write_text("".join(json.dumps(event) + "\n" for event in lines))
    (own,) = measured(run_dir, (5, 8))
    assert (own.kind, own.measured) == ("validity", None)


def test_no_number_without_a_report(run_dir: Path) -> None:
    report(run_dir).write_text('{"start": {}, "intervals": [')
    before, own = measured(run_dir, (0, 5), (5, 8))
    assert (before.measured, own.measured) == (0, None)


def test_totals_of_the_report_are_not_used(run_dir: Path) -> None:
    assert read_json(report(run_dir))["end"]["sum"]["bytes"] == 0


# --- clipping ------------------------------------------------------------------------------------


@st.composite
def counted(draw: st.DrawFn) -> tuple[list[tuple[int, int, int]], tuple[int, int]]:
    """Consecutive intervals of about a second, and a life that begins and ends anywhere in them."""
    begin = draw(st.integers(-5 * S, 5 * S))
    lengths = draw(st.lists(st.integers(S // 2, 2 * S), min_size=1, max_size=12))
    edges = [begin + sum(lengths[:i]) for i in range(len(lengths) + 1)]
    start = draw(st.integers(edges[0], edges[-1] - 1))
    end = draw(st.integers(start + 1, edges[-1]))
    # A receiver counts nothing while the flow does not run.
    intervals = [
        (since, until, draw(st.integers(0, 10**9)) if since < end and until > start else 0)
        for since, until in pairwise(edges)
    ]
    return intervals, (start, end)


def delivered(intervals: list[tuple[int, int, int]], life: tuple[int, int], start: int, end: int) -> float:
    """Bytes in a window, by the counter that is made of intervals."""
    rows = analysis.interval_counters("f", intervals, life)
    (rate,) = analysis.mean_goodput(rows, start, end).values()
    return rate * (end - start) / 8e9


@given(counted(), st.data())
def test_bytes_of_neighbouring_windows_add_up(
    of: tuple[list[tuple[int, int, int]], tuple[int, int]], data: st.DataObject
) -> None:
    intervals, life = of
    first, last = intervals[0][0], intervals[-1][1]
    a, b, c = sorted(data.draw(st.lists(st.integers(first, last), min_size=3, max_size=3, unique=True)))
    parts = delivered(intervals, life, a, b) + delivered(intervals, life, b, c)
    total = sum(count for *_, count in intervals)
    assert parts == pytest.approx(delivered(intervals, life, a, c), abs=1e-6 * max(total, 1))


@given(counted())
def test_all_bytes_are_in_the_life_of_the_flow(
    of: tuple[list[tuple[int, int, int]], tuple[int, int]],
) -> None:
    intervals, life = of
    total = sum(count for *_, count in intervals)
    assert delivered(intervals, life, *life) == pytest.approx(total)
    for start, end in ((intervals[0][0], life[0]), (life[1], intervals[-1][1])):
        if start < end:
            assert delivered(intervals, life, start, end) == 0


@given(counted(), st.data())
def test_an_interval_gives_a_window_its_share_of_time(
    of: tuple[list[tuple[int, int, int]], tuple[int, int]], data: st.DataObject
) -> None:
    intervals, life = of
    inside = [i for i in intervals if life[0] <= i[0] and i[1] <= life[1]]
    if not inside:
        return
    since, until, count = data.draw(st.sampled_from(inside))
    start, end = sorted(data.draw(st.lists(st.integers(since, until), min_size=2, max_size=2, unique=True)))
    share = (end - start) / (until - since)
    total = sum(count for *_, count in intervals)
    assert delivered(intervals, life, start, end) == pytest.approx(count * share, abs=1e-6 * max(total, 1))
