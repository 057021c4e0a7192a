from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import REPOSITORY, inventory

from dumbbell.plan import Plan, calibration, plan
from dumbbell.scenario import ScenarioError
from plan.plans import SCENARIO, SCENARIOS, only, planned

# What every host of a measurement samples.
HOST_SAMPLES = {"link": True, "snmp": True, "cpu": True, "clock": True, "trace": False, "ebpf": False}


@pytest.mark.parametrize("path", sorted(SCENARIOS.rglob("*.yml")), ids=lambda path: path.stem)
def test_same_input_same_bytes(path: Path) -> None:
    first = plan(path, inventory()).to_json()
    assert first == plan(path, inventory()).to_json()
    assert Plan.model_validate_json(first).to_json() == first


def test_the_point_is_the_configuration(tmp_path: Path) -> None:
    text = SCENARIO.read_text()
    for changed in (
        text.replace("title: Two", "title: 2"),
        text.replace("title: Two", "seed: 5\ntitle: Two"),  # nothing is drawn
        text.replace("min: 90%", "min: 80%"),
    ):
        assert text != changed
        assert only(tmp_path, changed).id == planned().id
    for changed in (text.replace("start: 5s", "start: 6s"), text.replace("1bdp}}", "2bdp}}")):
        assert text != changed
        assert only(tmp_path, changed).id != planned().id


def test_how_a_path_is_checked_is_not_part_of_the_point(monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned()
    monkeypatch.setattr(calibration, "PING_COUNT", 21)
    assert planned().phase("calibration") != before.phase("calibration")
    assert planned().id == before.id


def test_pings_alone_are_warned_of(tmp_path: Path) -> None:
    pings = "flows:\n  echo: {kind: ping, from: 'senders[0]', to: 'receivers[0]'}\n"
    text = SCENARIO.read_text()
    (tmp_path / "x.yml").write_text(text[: text.index("flows:")] + pings)
    warnings = plan(tmp_path / "x.yml", inventory()).warnings
    assert list(map(str, warnings)) == ["no_data: no flow sends data: pings find an idle path"]


def test_measurement_is_that_of_the_data_model() -> None:
    phase = json.loads(planned().model_dump_json())["phases"][1]
    assert phase["flows"][0] == {
        "name": "flow1", "kind": "tcp", "direction": "forward",
        "src_host": "sender1", "dst_host": "receiver1",
        "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5201, "client_port": 10001, "streams": 1,
        "start_ns": 0, "duration_ns": 30_000_000_000, "congestion_control": "cubic", "rate_bps": None,
    }  # fmt: skip
    assert phase["hosts"]["sender1"] == {
        "actions": [{"at_ns": 0, "kind": "tcp_send", "flow": "flow1"}],
        "sample": {"tcp": ["flow1"], "qdisc": False} | HOST_SAMPLES | {"queues": True},
    }
    assert phase["hosts"]["receiver1"]["actions"][0]["at_ns"] == -5_000_000_000
    assert phase["hosts"]["router"] == {"actions": [], "sample": {"tcp": [], "qdisc": True} | HOST_SAMPLES}


def test_new_plans_have_the_settings_of_hosts_judged() -> None:
    made = plan(REPOSITORY / "scenarios/two_flow_fairness.yml", inventory())
    assert made.observed
    older = made.model_dump() | {"schema_version": 1}
    assert not Plan.model_validate(older).observed


def test_another_seed_and_number_of_repetitions_may_be_asked_for() -> None:
    scenario = REPOSITORY / "scenarios" / "shallow_queues.yml"
    own = plan(scenario, inventory(), "tiny")
    found = plan(scenario, inventory(), "tiny", own.seed + 2, 3)
    assert found.seed == own.seed + 2
    assert [point.repetition for point in found.points].count(3) == len(own.points)
    assert {point.id for point in found.points} == {point.id for point in own.points}
    assert len(found.points) == 3 * len(own.points)
    assert plan(scenario, inventory(), "tiny", own.seed, None) == own


@pytest.mark.parametrize(
    ("seed", "repetitions", "key"),
    [(-1, None, "seed"), (2**63, None, "seed"), (None, 0, "repetitions"), (None, 1001, "repetitions")],
)
def test_they_have_the_bounds_of_the_scenario_s(seed: int | None, repetitions: int | None, key: str) -> None:
    value = repetitions if seed is None else seed
    with pytest.raises(ScenarioError, match=f"{key}: {value} should be "):
        plan(REPOSITORY / "scenarios" / "shallow_queues.yml", inventory(), "tiny", seed, repetitions)
