"""What is said of a phase that is under way."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import inventory

from dumbbell.plan import Phase, plan
from dumbbell.run.progress import describe, line

S = 10**9
RATES = {"flow1": 47.3e6, "flow2": 48e6}
SCENARIO = """\
name: x
title: x
duration: 30s
flows:
  flow1: {kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]"}
  flow2: {kind: udp, from: "senders[1]", to: "receivers[1]", rate: 50mbit, start: 5s, duration: 10s}
  unseen: {kind: iperf3_udp, from: "senders[1]", to: "receivers[1]", rate: 1mbit}
"""


@pytest.fixture(scope="module")
def phase(tmp_path_factory: pytest.TempPathFactory) -> Phase:
    file: Path = tmp_path_factory.mktemp("scenario") / "x.yml"
    file.write_text(SCENARIO)
    return plan(file, inventory()).points[0].phase("measurement")


@pytest.mark.parametrize(
    ("at_s", "rates_bps", "said"),
    [
        (3, RATES, "1 of 1 flows alive, 47.3 Mbit/s"),
        (7, RATES, "2 of 2 flows alive, 95.3 Mbit/s: flow1 47.3 Mbit/s, flow2 48 Mbit/s"),
        (7, {"flow2": 48e6}, "1 of 2 flows alive, 48 Mbit/s"),
        (7, {"other": 1.0}, "0 of 2 flows alive"),
        (7, {}, "no samples lately"),
        (7, "(no answer)", "(no answer)"),
        (31, RATES, "no flow"),
    ],
)
def test_flows(phase: Phase, at_s: int, rates_bps: dict[str, float] | str, said: str) -> None:
    assert describe(phase, at_s * S, rates_bps) == said


def test_a_line_of_a_log(phase: Phase) -> None:
    assert line("point 1 of 2", phase, 12 * S, "no flow") == (
        "point 1 of 2 measurement: 00:12 of 00:30, 00:18 left, no flow"
    )
    assert line("x", phase, -9 * S, "") == "x measurement: starts in 9 s"
    assert "00:30 of 00:30, 00:00 left" in line("x", phase, 31 * S, "no flow")


def test_a_line_of_a_terminal_has_a_bar(phase: Phase) -> None:
    assert line("x", phase, 15 * S, "no flow", 80) == (
        "x measurement: |█████     | 00:15 of 00:30, 00:15 left, no flow"
    )


@given(st.integers(-20 * S, 40 * S), st.text(st.characters(codec="utf-8", categories=["L", "Zs"])), st.data())
def test_it_is_no_wider_than_the_terminal(phase: Phase, at_ns: int, flows: str, data: st.DataObject) -> None:
    columns = data.draw(st.integers(1, 200))
    assert len(line("point 1 of 2", phase, at_ns, flows, columns)) <= columns
