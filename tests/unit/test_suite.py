"""Suites: what is wrong in one, and what of one is left to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from synthetic import REPOSITORY, inventory

from dumbbell.plan import plan
from dumbbell.run.directory import RunDir
from dumbbell.scenario import ScenarioError
from dumbbell.suite import INTERRUPTED, NOT_RUN, Suite, find_run, load, planned, run_suite

SCENARIOS = REPOSITORY / "scenarios"
SUITES = sorted([*REPOSITORY.glob("suites/*.yml"), *REPOSITORY.glob("suites/seeds/*.yml")])


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
