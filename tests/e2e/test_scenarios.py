"""One shipped scenario of each family, run as a suite in virtual time: exact, however busy the machine is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dumbbell.metrics.values import values
from dumbbell.suite import Outcome, load, run_suite
from playbooks import REPOSITORY

pytestmark = pytest.mark.virtual

SUITE = REPOSITORY / "suites" / "tiny.yml"
INVENTORY = Path("inventory/vtime")
FAMILIES = (
    "on_off_udp",
    "fairness_of_pairs",
    "web_fetches",
    "eight_hour_transfer",
    "load_latency",
    "ndt",
    "atou_ack_limited",
    "recovery_arms",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suite")


@pytest.fixture(scope="module")
def outcomes(results: Path) -> dict[str, Outcome]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)
        found = list(run_suite(load(SUITE), INVENTORY, results))
    return {Path(outcome.entry.scenario).stem: outcome for outcome in found}


@pytest.mark.parametrize("family", FAMILIES)
def test_it_passes(outcomes: dict[str, Outcome], family: str) -> None:
    outcome = outcomes[family]
    assert outcome.state == "passed", outcome.reasons
    assert outcome.run_dir is not None
    assert not values(outcome.run_dir).is_empty()
    assert (outcome.run_dir / "report.html").exists()


def test_what_has_ended_is_not_run_again(
    outcomes: dict[str, Outcome], results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    before = sorted(results.iterdir())
    again = list(run_suite(load(SUITE), INVENTORY, results))
    assert [outcome.run_dir for outcome in again] == [outcome.run_dir for outcome in outcomes.values()]
    assert sorted(results.iterdir()) == before
