"""Criteria: what is wrong in a file is named with its place, and the shipped ones fit their scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import REPOSITORY

from dumbbell.evaluation.criteria import FOLDER, load
from dumbbell.evaluation.evaluation import PROFILES, Asked, Evaluation
from dumbbell.evaluation.judge import bound_in_words
from dumbbell.evaluation.subject import Subject
from dumbbell.scenario import ScenarioError
from tools import evaluation_docs

VTIME = REPOSITORY / "inventory" / "vtime"
SCENARIO = """\
name: one
title: One flow
duration: 10s
matrix: {control: cubic, queue: [1bdp, 2bdp]}
path: {forward: {rate: 20mbit, delay: 10ms, queue: {kind: pfifo, limit: $queue}}}
flows:
  flow: {kind: tcp, from: "senders[0]", to: "receivers[0]", congestion_control: $control}
"""
FAMILY = """\
name: alone
title: Alone
shows: something
lacks: much
scenario: SCENARIO
criteria:
  - {name: used, title: Used, metric: utilisation, source: RFC 5166, ENDS}
"""


def written(tmp_path: Path, ends: str, family: str = FAMILY) -> Path:
    (tmp_path / "one.yml").write_text(SCENARIO)
    folder = tmp_path / "criteria"
    folder.mkdir(exist_ok=True)
    text = family.replace("SCENARIO", str(tmp_path / "one.yml")).replace("ENDS", ends)
    (folder / "alone.yml").write_text(text)
    return folder


def evaluation(folder: Path, results: Path, profile: str = PROFILES[0]) -> Evaluation:
    return Evaluation(Asked([Subject.of("cubic")], load(folder), VTIME, results, profile))


@pytest.mark.parametrize("profile", PROFILES)
def test_shipped_criteria_fit_their_scenarios(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert "cubic: " in evaluation(FOLDER, tmp_path, profile).announced()


def test_the_quick_profile_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    shipped = evaluation(FOLDER, tmp_path)
    points = sum(len(wanted.points) for wanted in shipped.plans["cubic"])
    assert 40 <= points <= 65


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("min: 90%, relativ: {}", "alone.yml:7:80: criteria[0].relativ: unknown key"),
        ("lacks: nothing", "criteria[0]: give min, max or both, or `relative`"),
        ("min: 90%, max: 80%", "criteria[0]: min is above max"),
        (
            "min: 90%, relative: {to: [reno], min: 1}",
            "give absolute bounds (min, max) or `relative`, not both",
        ),
        ("relative: {min: 1}", "criteria[0].relative: give `to`, names of references, or `at`, levels"),
        ("relative: {to: [reno]}", "criteria[0].relative: give min, max or both"),
        ("min: fast", "criteria[0].min: 'fast'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, ends: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(written(tmp_path, ends))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (
            "min: 90%, when: {queu: 1bdp}",
            "criteria[0].when.queu: nothing of this name varies, did you mean queue?",
        ),
        ("min: 90%, when: {queue: 3bdp}", "criteria[0].when.queue: queue is never 3bdp"),
        ("min: 90%, flows: [flaw]", "criteria[0].flows[0]: no flow flaw runs there, did you mean flow?"),
        ("relative: {at: {queue: 9bdp}, min: 1}", "criteria[0].relative.at.queue: queue is never 9bdp"),
    ],
)
def test_what_its_scenario_does_not_have_is_named(tmp_path: Path, ends: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        evaluation(written(tmp_path, ends), tmp_path / "results")
    assert said in str(caught.value)


def test_a_scenario_without_a_place_for_the_candidate_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, "min: 90%")
    scenario = tmp_path / "one.yml"
    scenario.write_text(SCENARIO.replace("control: cubic, ", "").replace("$control", "cubic"))
    with pytest.raises(ScenarioError, match="matrix: has no value `control`"):
        evaluation(folder, tmp_path / "results")


def test_a_name_that_two_criteria_have_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, "min: 90%")
    (folder / "again.yml").write_text((folder / "alone.yml").read_text())
    with pytest.raises(ScenarioError, match="2 criteria have the name used"):
        load(folder)


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ("min: 90%", "at least 90 %"),
        ("min: 50%, max: 90%", "at least 50 % and at most 90 %"),
        ("relative: {to: [reno, cubic], max: 1.5}", "at most 1.5 x reno or cubic"),
        ("relative: {at: {queue: 2bdp}, min: 0.5}", "at least 0.5 x its own at queue 2bdp"),
    ],
)
def test_bounds_in_words(tmp_path: Path, ends: str, words: str) -> None:
    (file,) = load(written(tmp_path, ends))
    assert bound_in_words(file.family.criteria[0]) == words


def test_the_documentation_has_all_criteria() -> None:
    text = (REPOSITORY / "docs" / "evaluation.md").read_text()
    assert evaluation_docs.documented(text) == text, "write it again: make docs"
