"""Suites: what is wrong in one, and what of one is left to do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from stand_in import Playbook
from synthetic import REPOSITORY, inventory

from dumbbell.plan import Inventory, plan
from dumbbell.run.directory import RunDir
from dumbbell.scenario import ScenarioError
from dumbbell.suite import INTERRUPTED, NOT_RUN, Suite, find_run, in_turn, load, planned, run_suite

SCENARIOS = REPOSITORY / "scenarios"
INVENTORY = REPOSITORY / "inventory" / "lab"
SUITES = sorted(REPOSITORY.glob("suites/*.yml"))


def suite(tmp_path: Path, text: str) -> Suite:
    (tmp_path / "suite.yml").write_text(text)
    return load(tmp_path / "suite.yml")


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_shipped_suites_can_be_planned(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    shipped = load(path)
    assert shipped.name == path.stem
    assert len(planned(shipped, inventory())) == len(shipped.runs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\ntitle: y\nruns: []\n", "suite.yml:3:1: runs: "),
        ("name: x\ntitle: y\nruns: [{scenari: a}]\n", "suite.yml:3:9: runs[0].scenari: "),
        ("name: x\ntitle: y\nruns: [{scenario: a}]\nbudgets: 8h\n", "suite.yml:4:1: budgets: "),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        suite(tmp_path, text)
    assert said in str(caught.value)


def test_nothing_is_planned_where_one_scenario_cannot_be(tmp_path: Path) -> None:
    runs = (
        f"[{{scenario: {SCENARIOS}/random_loss.yml}}, {{scenario: {SCENARIOS}/random_loss.yml, profile: x}}]"
    )
    with pytest.raises(ScenarioError, match="has no profile x"):
        planned(suite(tmp_path, f"name: x\ntitle: y\nruns: {runs}\n"), inventory())


def test_a_run_is_found_by_its_plan(tmp_path: Path) -> None:
    scenario, other = (SCENARIOS / f"{name}.yml" for name in ("random_loss", "two_flow_fairness"))
    results = tmp_path / "results"
    wanted = plan(scenario, inventory())
    assert find_run(results, wanted) is None
    begun = RunDir.create(wanted, scenario, results)
    assert (found := find_run(results, wanted)) is not None
    assert found.dir == begun.dir
    assert find_run(results, plan(other, inventory())) is None
    changed = tmp_path / "random_loss.yml"
    shutil.copy(scenario, changed)
    changed.write_text(changed.read_text().replace("duration: ", "seed: 9\nduration: "))
    assert find_run(results, plan(changed, inventory())) is None


def test_what_would_not_end_within_the_budget_is_not_begun(tmp_path: Path) -> None:
    runs = f"[{{scenario: {SCENARIOS}/two_flow_fairness.yml}}]"
    short = suite(tmp_path, f"name: x\ntitle: y\nbudget: 1min\nruns: {runs}\n")
    (outcome,) = run_suite(short, REPOSITORY / "inventory" / "lab", tmp_path / "results")
    assert (outcome.state, outcome.run_dir) == (NOT_RUN, None)
    assert outcome.reasons == ("it takes about 1 min 50 s, and 1 min are left of the budget of 1 min",)
    assert not (tmp_path / "results").exists()


TWO_PROFILES = """\
name: x
title: y
duration: 20s
flows: {tcp: {kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]"}}
profiles:
  a: {flows: {tcp: {congestion_control: cubic}}}
  b: {flows: {tcp: {congestion_control: reno}}}
"""


class Rounds:
    """Rounds of two profiles, and what is to become of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.results, self.scenario = folder / "results", folder / "x.yml"
        self.scenario.write_text(TWO_PROFILES)
        self.playbook = Playbook.install(folder / "bin", monkeypatch)
        lab = Inventory.read(INVENTORY)
        self.plans = {name: plan(self.scenario, lab, name).to_json().decode() for name in "ab"}

    def will(self, *runs: tuple[str, str]) -> None:
        """Profile and state of each run, in the order in which they are asked for."""
        for profile, state in runs:
            files = {"plan.json": self.plans[profile], "verdict.json": verdict(state)}
            if state == "no directory":
                self.playbook.leaves_nothing()
            else:
                self.playbook.leaves("x", files)

    def there(self, profile: str, name: str, state: str, plan_text: str | None = None) -> Path:
        """A run of an earlier call."""
        (run := self.results / profile / name).mkdir(parents=True)
        (run / "plan.json").write_text(plan_text or self.plans[profile])
        (run / "verdict.json").write_text(verdict(state))
        return run

    def in_turn(self, rounds: int) -> tuple[list[str], list[str]]:
        """States of the runs of each profile."""
        found = in_turn(self.scenario, ("a", "b"), rounds, INVENTORY, self.results)
        assert self.playbook.left == 0
        first, second = (
            [json.loads((run / "verdict.json").read_text())["state"] for run in of] for of in found
        )
        return first, second

    @property
    def order(self) -> str:
        return "".join(asked["profile"] for asked in self.playbook.asked)


def verdict(state: str) -> str:
    return json.dumps({"state": state, "reasons": ["why"], "checks": []})


@pytest.fixture
def rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    return Rounds(tmp_path, monkeypatch)


def test_profiles_are_run_in_turn(rounds: Rounds) -> None:
    rounds.will(("a", "passed"), ("b", "failed"), ("b", "passed"), ("a", "passed"))
    assert rounds.in_turn(2) == (["passed", "passed"], ["failed", "passed"])
    assert rounds.order == "abba"
    assert rounds.in_turn(2) == (["passed", "passed"], ["failed", "passed"])
    assert rounds.order == "abba"


def test_rounds_that_are_not_valid_are_replaced_at_once(rounds: Rounds) -> None:
    rounds.will(("a", "invalid"), ("a", "passed"), ("b", "passed"), ("b", "aborted"), ("b", "no directory"))
    rounds.will(("b", "passed"), ("a", "passed"))
    assert rounds.in_turn(2) == (["invalid", "passed", "passed"], ["passed", "aborted", "passed"])
    assert rounds.order == "aabbbba"


def test_no_profile_is_run_more_than_twice_as_often_as_asked(rounds: Rounds) -> None:
    rounds.will(*[("a", "invalid")] * 3, ("b", "passed"), ("b", "passed"), ("a", "passed"))
    assert rounds.in_turn(2) == (["invalid"] * 3 + ["passed"], ["passed", "passed"])
    assert rounds.order == "aaabba"


def test_only_valid_runs_of_the_same_plan_count_as_rounds(rounds: Rounds) -> None:
    earlier = rounds.plans["a"].replace("cubic", "vegas")
    rounds.there("a", "20250101T000000Z_x", "passed", earlier)
    rounds.there("a", "20250102T000000Z_x", "invalid")
    rounds.there("a", "20250103T000000Z_x_attempt1", "passed")
    rounds.there("b", "20250103T000000Z_x", "passed")
    rounds.will(("a", "passed"))
    assert rounds.in_turn(1) == (["invalid", "passed"], ["passed"])


PLAYBOOK = """#!/bin/sh
trap 'touch "$0.answered"; exit 1' INT
echo begun
while :; do sleep 0.05; done
"""


def test_an_interrupt_is_for_the_playbook_to_answer(tmp_path: Path) -> None:
    for name in ("python", "ansible-inventory"):
        (tmp_path / name).symlink_to(Path(sys.executable).with_name(name))
    playbook = tmp_path / "ansible-playbook"
    playbook.write_text(PLAYBOOK)
    playbook.chmod(0o755)
    command = [f"{tmp_path}/python", "-m", "dumbbell.cli.suite", "suites/tiny.yml"]
    command += ["--results", f"{tmp_path}/runs"]
    packages = os.pathsep.join([str(REPOSITORY / "src"), sysconfig.get_path("purelib")])
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": packages},
        start_new_session=True,  # a terminal sends the signal to all processes of its group
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as suite_process:
        assert suite_process.stdout is not None
        assert suite_process.stdout.readline() == "begun\n"
        os.killpg(suite_process.pid, signal.SIGINT)
        _, said = suite_process.communicate(timeout=30)
    assert (suite_process.returncode, said) == (
        INTERRUPTED,
        "Interrupted. The same command goes on where it was.\n",
    )
    assert playbook.with_suffix(".answered").exists()
