"""Transfers of drawn sizes and begins, in the plan."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import inventory

from dumbbell.kinds.asked.http import Sizes
from dumbbell.plan import plan
from dumbbell.plan.document import Transfer
from dumbbell.scenario import ScenarioError
from plan.plans import WAY, S, measured, scenario

LOGNORMAL = {"lognormal": {"median": "20kB", "sigma": 1.5, "most": "1MB"}}
FLOW = {"kind": "http", "from": "senders[0]", "to": "receivers[0]"}

kilobytes = st.integers(1, 50).map("{}kB".format)
megabytes = st.integers(1, 5).map("{}MB".format)
lognormal = st.fixed_dictionaries({"median": kilobytes, "sigma": st.floats(0.01, 3), "most": megabytes})
pareto = st.fixed_dictionaries(
    {"least": kilobytes, "shape": st.just(1) | st.floats(0.01, 20), "most": megabytes}
)
weighted = st.dictionaries(kilobytes, st.floats(0.01, 100), min_size=1, max_size=5)
sizes = st.one_of(
    lognormal.map(lambda of: {"lognormal": of}),
    pareto.map(lambda of: {"pareto": of}),
    weighted.map(lambda of: {"weighted": of}),
)


def drawn(tmp_path: Path, transfers: dict[str, Any], rate: str = "100mbit", **more: Any) -> list[Transfer]:
    """What is drawn for one flow of 10 s over a path of this rate."""
    text = scenario({"web": FLOW | {"transfers": transfers}}, path={"forward": WAY | {"rate": rate}}, **more)
    (tmp_path / "x.yml").write_text(text)
    (flow,) = plan(tmp_path / "x.yml", inventory()).points[0].phase("measurement").flows
    assert flow.transfers is not None
    return flow.transfers


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    sizes=sizes, load=st.integers(5, 95).map("{}%".format), within=st.integers(1, 10), seed=st.integers(0, 99)
)
def test_transfers_are_in_their_time_and_caps(
    tmp_path: Path, sizes: dict[str, Any], load: str, within: int, seed: int
) -> None:
    asked = {"sizes": sizes, "load": load, "within": f"{within}s"}
    found = drawn(tmp_path, asked, rate="5mbit", seed=seed)
    begins = [transfer.at_ns for transfer in found]
    assert begins[0] == 0
    assert begins == sorted(set(begins))
    assert begins[-1] < within * S
    assert not any(ns % 1000 for ns in begins)
    of = Sizes.model_validate(sizes)
    if of.weighted is not None:
        assert {transfer.bytes for transfer in found} <= set(of.weighted)
    else:
        capped = of.lognormal or of.pareto
        assert capped is not None
        least = of.pareto.least if of.pareto else 1
        assert all(least <= transfer.bytes <= capped.most for transfer in found)
    assert drawn(tmp_path, asked, rate="5mbit", seed=seed) == found


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(sizes=sizes, load=st.integers(20, 95), seed=st.integers(0, 999))
def test_the_load_is_what_was_asked(tmp_path: Path, sizes: dict[str, Any], load: int, seed: int) -> None:
    """The bytes of a Poisson number of transfers vary by the mean of their squares; seven deviations."""
    of = Sizes.model_validate(sizes)
    rate_bps = round(8 * of.mean_bytes * 500 / (load / 100))  # about 5000 transfers in 10 s
    found = drawn(tmp_path, {"sizes": sizes, "load": f"{load}%"}, rate=f"{rate_bps}bit", seed=seed)
    most = max(transfer.bytes for transfer in found)
    squares = sum(transfer.bytes**2 for transfer in found)
    asked_bytes = load / 100 * rate_bps * 10 / 8
    assert abs(sum(transfer.bytes for transfer in found) - asked_bytes) < 7 * math.sqrt(squares) + most
    assert abs(len(found) - 5000) < 7 * math.sqrt(5000)


def test_levels_meet_the_same_sizes_and_repetitions_others(tmp_path: Path) -> None:
    flow = FLOW | {"transfers": {"sizes": LOGNORMAL, "load": "30%"}, "congestion_control": ["cubic", "reno"]}
    matrix = {"rate": ["10mbit", "20mbit"]}
    path = {"forward": WAY | {"rate": "$rate"}}
    (tmp_path / "x.yml").write_text(scenario({"web": flow}, matrix=matrix, path=path, repetitions=2))
    found: dict[tuple[int, str], list[list[Transfer]]] = {}
    for point in plan(tmp_path / "x.yml", inventory()).points:
        (web,) = point.phase("measurement").flows
        assert web.transfers is not None
        found.setdefault((point.repetition, point.levels["rate"]), []).append(web.transfers)
    for one, other in found.values():  # of the two congestion controls
        assert one == other
    slow, fast = found[1, "10mbit"][0], found[1, "20mbit"][0]
    assert [t.bytes for t in slow] == [t.bytes for t in fast][: len(slow)]
    assert [t.at_ns for t in slow] == pytest.approx([2 * t.at_ns for t in fast][: len(slow)], abs=1e6)
    assert found[1, "10mbit"] != found[2, "10mbit"]


def test_transfers_in_the_plan(tmp_path: Path) -> None:
    flow = measured(tmp_path, kind="http", transfers={"sizes": {"weighted": {"5kB": 1}}, "per_second": 20})
    told = flow.model_dump()
    assert {transfer["bytes"] for transfer in told["transfers"]} == {5000}
    assert not {"fetch_bytes", "fetches", "think_ns", "persistent"} & told.keys()
    assert flow.asked_bytes is None


@pytest.mark.parametrize(
    ("flow", "reason"),
    [
        ({}, "give size, or transfers"),
        ({"size": "1kB", "transfers": {"sizes": LOGNORMAL, "load": "1%"}}, "size does not go with them"),
        ({"think": "1s", "transfers": {"sizes": LOGNORMAL, "load": "1%"}}, "think does not go with them"),
        ({"transfers": {"sizes": LOGNORMAL}}, "give per_second or load"),
        ({"transfers": {"sizes": LOGNORMAL, "load": "1%", "per_second": 1}}, "give per_second or load"),
        (
            {"transfers": {"sizes": LOGNORMAL | {"weighted": {"1kB": 1}}, "load": "1%"}},
            "give one of lognormal",
        ),
        ({"transfers": {"sizes": {}, "load": "1%"}}, "give one of lognormal"),
        (
            {"transfers": {"sizes": {"pareto": {"least": "1MB", "shape": 1.2, "most": "1MB"}}, "load": "1%"}},
            "most has to be more than least",
        ),
        ({"transfers": {"sizes": {"weighted": {"1 apple": 1}}, "load": "1%"}}, "1 apple"),
        (
            {"transfers": {"sizes": LOGNORMAL, "load": "1%"}},
            "the bottleneck's rate at the flow's start, and there",
        ),
        (
            {"transfers": {"sizes": LOGNORMAL, "per_second": 5000}},
            "about 50000 would begin: at most 20000 may",
        ),
        (
            {"transfers": {"sizes": LOGNORMAL, "per_second": 1, "within": "11s"}},
            "they begin within 11s, and the flow lasts 10s",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, flow: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        measured(tmp_path, kind="http", **flow)
