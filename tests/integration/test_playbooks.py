"""The playbooks as users start them, as far as they go without a host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from playbooks import REPOSITORY, ansible_playbook, unfolded

PLAYBOOKS = sorted((REPOSITORY / "playbooks").glob("*.yml"))
INVENTORIES = sorted(hosts.parent for hosts in (REPOSITORY / "inventory").glob("*/hosts.yml"))
GOOD = (REPOSITORY / "scenarios" / "two_flow_fairness.yml").read_text()
NOBODY = 65534


def playbook(*arguments: str | Path) -> tuple[int, str]:
    code, said = ansible_playbook(*arguments)
    return code, unfolded(said)


def test_there_are_playbooks_and_inventories() -> None:
    assert {"lab_up.yml", "provision.yml", "run.yml"} <= {path.name for path in PLAYBOOKS}
    assert "lab" in {inventory.name for inventory in INVENTORIES}


@pytest.mark.parametrize("inventory", INVENTORIES, ids=lambda path: path.name)
@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_syntax(path: Path, inventory: Path) -> None:
    code, said = playbook("--syntax-check", "--inventory", inventory, path)
    assert code == 0, said
    assert "ERROR" not in said


def test_preflight_tells_other_users_than_root_so() -> None:
    command = ["sh", "-s"]
    if os.geteuid() == 0:
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
    script = (REPOSITORY / "roles/lab/files/preflight.sh").read_text()
    done = subprocess.run(command, input=script, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Dumbbell's virtual lab cannot run here: it needs root")


BAD = {
    "unknown key": ("duration: 30s\n", "duration: 30s\nsede: 1\n", "sede: ", "did you mean seed"),
    "bad unit": ("forward: {rate: 100mbit", "forward: {rate: 100mbps", "path.forward.rate: ", "100mbps"),
    "duplicate key": ("title: ", "title: x\ntitle: ", "title: duplicate key", "first given in line"),
    "unknown host": ("from: senders[1]", "from: sender9", "flows.flow2.from: ", "no host sender9"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "key", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_scenario_is_refused_before_any_host_is_asked(
    tmp_path: Path, old: str, new: str, key: str, reason: str
) -> None:
    assert old in GOOD
    scenario, results = tmp_path / "bad.yml", tmp_path / "results"
    text = GOOD.replace(old, new, 1)
    scenario.write_text(text)
    # The offending line: the last that the replacement wrote.
    line = text[: text.index(new) + len(new.rstrip("\n"))].count("\n") + 1

    code, said = playbook("playbooks/run.yml", "-e", f"scenario={scenario}", "-e", f"results_dir={results}")
    assert code != 0
    assert f"{scenario}:{line}:" in said
    where, _, why = said.partition(f"{scenario}:{line}:")[2].partition(": ")
    assert where.isdecimal()  # the column
    assert why.startswith(key)
    assert reason in why
    assert "Traceback" not in said
    assert "PLAY [Plan]" in said
    assert said.count("PLAY [") == 1
    assert not results.exists()


def test_a_scenario_that_is_not_there(tmp_path: Path) -> None:
    results = tmp_path / "results"
    code, said = playbook(
        "playbooks/run.yml", "-e", f"scenario={tmp_path}/none.yml", "-e", f"results_dir={results}"
    )
    assert code != 0
    assert f"{tmp_path}/none.yml:1:1: cannot be read: No such file or directory" in said
    assert "Traceback" not in said
    assert not results.exists()


def test_no_scenario_is_said_with_an_example() -> None:
    code, said = playbook("playbooks/run.yml")
    assert code != 0
    assert "name a scenario: -e scenario=scenarios/two_flow_fairness.yml" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-e", "point=123"), "on_off_udp: there is no point 123"),
        (("-e", "profile=long"), "profiles: the scenario has no profile long"),
    ],
)
def test_a_point_or_profile_that_is_not_there(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    results = tmp_path / "results"
    scenario = ("-e", "scenario=scenarios/on_off_udp.yml", "-e", f"results_dir={results}")
    code, text = ansible_playbook("playbooks/run.yml", *scenario, *arguments)
    assert code != 0
    assert said in text
    assert ("udp_alone load=50mbit" in text) == ("point" in said)
    assert "Traceback" not in text
    assert not results.exists()
