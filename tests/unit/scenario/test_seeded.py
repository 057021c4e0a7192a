"""Copies of scenarios with other seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import REPOSITORY

from dumbbell.scenario import ScenarioError, load
from dumbbell.scenario.seeded import seeded

SCENARIO = REPOSITORY / "scenarios" / "shallow_queues.yml"


def test_a_copy_is_the_profile_with_other_seeds(tmp_path: Path) -> None:
    copy = load(seeded(SCENARIO, "tiny", 3, tmp_path, later=2))
    original = load(SCENARIO, "tiny")
    assert (copy.scenario.seed, copy.scenario.repetitions) == (original.scenario.seed + 2, 3)
    alike = {"profiles", "seed", "repetitions"}
    assert [case.levels for case in copy.cases] == [case.levels for case in original.cases]
    assert copy.scenario.model_dump(exclude=alike) == original.scenario.model_dump(exclude=alike)


def test_what_is_wrong_is_said_of_the_scenario_itself(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="the scenario has no profile huge"):
        seeded(SCENARIO, "huge", 2, tmp_path)
    assert not list(tmp_path.iterdir())
