"""One shipped scenario of each family, run as a suite in the lab."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import Lab

from dumbbell.store.values import values
from dumbbell.suite import Outcome, load, run_suite
from playbooks import REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SUITE = REPOSITORY / "suites" / "tiny.yml"
INVENTORY = Path("inventory/lab")
FAMILIES = (
    *("on_off_udp", "fairness_of_pairs", "web_fetches", "eight_hour_transfer", "bbr_beside_cubic"),
    *("load_latency", "incast", "ndt"),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suite")


@pytest.fixture(scope="module")
def outcomes(lab: Lab, results: Path) -> dict[str, Outcome]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)
        found = list(run_suite(load(SUITE), INVENTORY, results))
    return {Path(outcome.entry.scenario).stem: outcome for outcome in found}


@pytest.mark.parametrize("family", FAMILIES)
def test_it_runs_to_its_verdict(outcomes: dict[str, Outcome], family: str) -> None:
    outcome = outcomes[family]
    # A busy machine's are `invalid`, which is a result too.
    assert outcome.state in ("passed", "invalid"), outcome.reasons
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
