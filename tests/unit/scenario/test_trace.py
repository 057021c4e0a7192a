"""Traces of rates: their files, and the changes of a path that they become."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dumbbell.scenario import ScenarioError
from dumbbell.scenario.load import load
from dumbbell.scenario.schema import schema
from dumbbell.scenario.trace import LEAST_BPS, read_steps

S = 10**9


def steps(tmp_path: Path, text: str, every_ns: int = S, duration_ns: int = 4 * S) -> list[tuple[int, int]]:
    (tmp_path / "trace").write_text(text)
    return read_steps(tmp_path / "trace", every_ns, duration_ns)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0,8000000\n2,4000000\n", [(0, 8_000_000), (2 * S, 4_000_000)]),
        (
            "# s, bit/s\n\n1.5,8000000\n2.5,4000000\n",
            [(0, 8_000_000), (2 * S, 6_000_000), (3 * S, 4_000_000)],
        ),
        ("0,0\n1,8000000", [(0, LEAST_BPS), (S, 8_000_000)]),
        ("7,5000000", [(0, 5_000_000)]),
        # 1000 deliveries of 1500 bytes in a second, and 500 in the next, again and again
        (
            "".join(f"{ms}\n" for ms in [*range(1, 1001), *range(1002, 2001, 2)]),
            [(0, 12_000_000), (S, 6_000_000), (2 * S, 12_000_000), (3 * S, 6_000_000)],
        ),
    ],
)
def test_means_of_intervals(tmp_path: Path, text: str, found: list[tuple[int, int]]) -> None:
    assert steps(tmp_path, text) == found


@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(10**5, 10**9)), min_size=1, max_size=20),
    st.sampled_from([S // 10, S // 3, S]),
)
def test_all_bits_of_a_trace_are_in_its_intervals(
    tmp_path_factory: pytest.TempPathFactory, waits: list[tuple[int, int]], every_ns: int
) -> None:
    at_ms, points = 0, []
    for wait_ms, bps in waits:
        points.append((at_ms, bps))
        at_ms += wait_ms
    text = "".join(f"{ms / 1000},{bps}\n" for ms, bps in points)
    duration_ns = 10 * S
    found = steps(tmp_path_factory.getbasetemp(), text, every_ns, duration_ns)
    ends = [*(at for at, _ in found[1:]), -(-duration_ns // every_ns) * every_ns]
    passed = sum(bps * (end - at) for (at, bps), end in zip(found, ends, strict=True))
    until = [*(ms * 10**6 for ms, _ in points[1:]), ends[-1]]
    asked = sum(
        bps * max(0, min(end, ends[-1]) - ms * 10**6) for (ms, bps), end in zip(points, until, strict=True)
    )
    assert passed == pytest.approx(asked, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no rate in it"),
        ("0,1000000\n1;2\n", "trace:2: '1;2' is not SECONDS,BIT_PER_SECOND"),
        ("1,1000000\n1,2000000\n", "trace:2: '1,2000000' is no later time and rate"),
        ("0,nan\n", "trace:1: '0,nan' is no later time"),
        ("5\n4\n", "trace:2: '4' is not a time in ms, no earlier"),
        ("0\n", "the last time is 0 ms"),
        ("x\n", "trace:1: 'x' is not a time in ms"),
    ],
)
def test_a_malformed_trace_is_told_by_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        steps(tmp_path, text)
    assert said in str(caught.value)


SCENARIO = """name: x
title: x
duration: 4s
path:
  forward: {rate_trace: {file: lte.csv}, delay: 5ms, queue: {kind: pfifo, limit: 100packets}}
flows:
  f: {kind: tcp, from: "senders[0]", to: "receivers[0]"}
"""


def test_a_trace_becomes_changes_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(SCENARIO)
    (tmp_path / "lte.csv").write_text("0,8000000\n2,4000000\n")
    jsonschema.Draft202012Validator(json.loads(schema())).validate(YAML(typ="safe").load(SCENARIO))
    path = load(tmp_path / "x.yml").scenario.path
    assert path is not None
    assert [(at, way.rate) for at, way in path.forward.states] == [(0, 8_000_000), (2 * S, 4_000_000)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SCENARIO, "lte.csv: No such file or directory"),
        (SCENARIO.replace("delay:", "rate: 5mbit, delay:"), "give rate_trace, or rate, not both"),
        (SCENARIO.replace("lte.csv", "../lte.csv"), "../lte.csv is not beside the scenario"),
    ],
)
def test_a_trace_that_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.yml").write_text(text)
    with pytest.raises(ScenarioError, match=said):
        load(tmp_path / "x.yml")
