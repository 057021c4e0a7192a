"""Scenarios whose right numbers are known beforehand: a suite in virtual time, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dumbbell.plan import Inventory, plan
from dumbbell.scenario import ScenarioError
from dumbbell.suite import Outcome, load, run_suite
from playbooks import REPOSITORY

pytestmark = [pytest.mark.virtual, pytest.mark.long]

FIELD = Path(__file__).with_name("field")
SUITE = load(FIELD / "suite.yml")
INVENTORY = Path("inventory/vtime")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)
        found = list(run_suite(SUITE, INVENTORY, tmp_path_factory.mktemp("field")))
    return {outcome.entry.scenario: outcome for outcome in found}


@pytest.mark.parametrize("scenario", [entry.scenario for entry in SUITE.runs])
def test_its_numbers_are_right(outcomes: dict[str, Outcome], scenario: str) -> None:
    outcome = outcomes[scenario]
    assert outcome.state == "passed", outcome.reasons


@pytest.mark.parametrize(
    ("scenario", "key", "reason"),
    [
        ("bytes_of_iperf3", "flows.iperf3", "use kind tcp"),
        (
            "limit_of_a_rate",
            "path.forward.queue.limit",
            "is not a queue limit: write a number and one of packets, ",
        ),
        (
            "policer",
            "path.forward.queue.kind",
            "a policer has no queue: give the direction `policer: {rate, burst}`",
        ),
    ],
)
def test_it_is_refused_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, scenario: str, key: str, reason: str
) -> None:
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(ScenarioError) as caught:
        plan(FIELD / f"{scenario}.yml", Inventory.read(INVENTORY))
    (problem,) = caught.value.problems
    assert problem.key == key
    assert reason in problem.reason
