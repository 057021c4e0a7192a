"""The playbooks as users start them, as far as they go without a host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from synthetic import inventory

from dumbbell.inventory.check import ASKED
from dumbbell.plan import plan
from dumbbell.run.directory import RunDir
from dumbbell.run.record import read_json
from playbooks import REPOSITORY, ansible_playbook, switched_off, unfolded

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


@pytest.mark.parametrize(("for_", "what"), [("lab", "virtual lab"), ("virtual", "virtual time")])
def test_preflight_tells_other_users_than_root_so(for_: str, what: str) -> None:
    command = ["sh", "-s", for_]
    if os.geteuid() == 0:
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
    script = (REPOSITORY / "roles/lab/files/preflight.sh").read_text()
    done = subprocess.run(command, input=script, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Dumbbell's {what} cannot run here: it needs root")


def test_preflight_tells_another_architecture_so(tmp_path: Path) -> None:
    (tmp_path / "uname").write_text("#!/bin/sh\necho aarch64\n")
    (tmp_path / "uname").chmod(0o755)
    command = ["sh", "roles/lab/files/preflight.sh", "virtual"]
    path = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=REPOSITORY, env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "needs a processor of the architecture x86_64 (found aarch64)" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(("for_", "said"), [("lab", "/dev/net/tun cannot be opened"), ("virtual", "")])
def test_only_the_lab_needs_taps(for_: str, said: str) -> None:
    hidden = 'mount -t tmpfs tmpfs /dev/net && exec sh roles/lab/files/preflight.sh "$0"'
    command = ["unshare", "--mount", "sh", "-c", hidden, for_]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (not said)
    assert said in done.stderr


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


def reason(said: str) -> str:
    """What the first task that failed said, unfolded."""
    return unfolded(said.partition("[ERROR]: Task failed: ")[2].partition("Origin: ")[0])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("playbooks/run.yml",), "name a scenario: -e scenario=scenarios/two_flow_fairness.yml"),
        (("playbooks/check.yml",), "name a scenario: -e scenario=scenarios/two_flow_fairness.yml"),
        (
            ("-i", "inventory/vtime", "playbooks/virtual.yml"),
            "name a scenario: -e scenario=scenarios/two_flow_fairness.yml",
        ),
        (
            ("playbooks/kernel_build.yml", "-e", "kernel=none.yml"),
            "none.yml is no file: name a recipe, for example kernels/lab.yml",
        ),
        *(
            (
                (*arguments, "-e", "run=none"),
                "none is no directory of a run: [Errno 2] No such file or directory: "
                f"'{REPOSITORY}/none/plan.json'",
            )
            for arguments in (
                ("playbooks/resume.yml",),
                ("playbooks/collect.yml",),
                ("playbooks/stop.yml",),
                ("-i", "inventory/vtime", "playbooks/virtual.yml"),
            )
        ),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_in_one_sentence_before_anything_is_done(
    arguments: tuple[str, ...], expected: str
) -> None:
    code, said = ansible_playbook(*arguments)
    assert code != 0
    assert reason(said) == expected
    assert "changed=0 " in said


def test_an_inventory_that_is_not_there_is_an_error() -> None:
    for path in ("run", "stop", "restore"):
        code, said = playbook("--inventory", "none", f"playbooks/{path}.yml")
        assert code != 0
        assert "PLAY [" not in said
        assert "none" in said
        assert "Traceback" not in said


@pytest.fixture
def off(tmp_path: Path) -> Path:
    """The lab's inventory, with addresses and a port where nobody answers."""
    return switched_off(tmp_path / "inventory/lab")


HOSTS = "sender1, sender2, receiver1, receiver2, router"


def test_a_run_whose_hosts_are_off_names_them_and_can_be_resumed(off: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    code, said = ansible_playbook(
        *("-i", off, "playbooks/run.yml", "-e", f"results_dir={results}"),
        *("-e", "scenario=scenarios/two_flow_fairness.yml"),
    )
    assert code != 0
    (run,) = results.glob("*_two_flow_fairness")
    sentence = (
        f"{HOSTS} do not answer by SSH: boot the lab with `make lab`. "
        f"Then: ansible-playbook playbooks/resume.yml -e run={run}"
    )
    assert sentence in unfolded(said)
    assert "PLAY [Results]" not in said
    (reason,) = read_json(run / "verdict.json")["reasons"]
    assert sentence in reason

    code, said = ansible_playbook("-i", off, "playbooks/resume.yml", "-e", f"run={run}")
    assert code != 0
    assert sentence in unfolded(said)


def test_a_run_that_was_not_begun_has_a_verdict(tmp_path: Path) -> None:
    scenario = REPOSITORY / "scenarios/two_flow_fairness.yml"
    run = RunDir.create(plan(scenario, inventory()), scenario, tmp_path / "results").dir
    code, said = playbook("playbooks/collect.yml", "-e", f"run={run}")
    assert code != 0
    assert "aborted: not run: the run ended before" in said
    assert f"ansible-playbook playbooks/resume.yml -e run={run}" in said
    assert "Report:" not in said


def test_stop_fails_and_names_the_hosts_that_it_did_not_reach(off: Path, tmp_path: Path) -> None:
    scenario = REPOSITORY / "scenarios/two_flow_fairness.yml"
    run = RunDir.create(plan(scenario, inventory()), scenario, tmp_path / "results").dir
    code, said = ansible_playbook("-i", off, "playbooks/stop.yml", "-e", f"run={run}")
    assert code != 0
    assert f"{HOSTS} do not answer by SSH: boot the lab" in unfolded(said)


def test_provisioning_changes_nothing_while_a_host_is_off(off: Path) -> None:
    variables = off / "group_vars/testbed.yml"
    variables.write_text(variables.read_text().replace("kernel_boot_method: lab", "kernel_boot_method: grub"))
    code, said = ansible_playbook("-i", off, "playbooks/provision.yml")
    assert code != 0
    assert (
        f"{HOSTS}, archive do not answer by SSH: check that they are on, and what the inventory"
        in unfolded(said)
    )
    assert "PLAY [Kernels" not in said


def test_fidelity_writes_no_table_when_nothing_was_measured(off: Path) -> None:
    tables = [REPOSITORY / "docs/fidelity.md", REPOSITORY / "bench/fidelity.json"]
    before = [table.read_bytes() for table in tables]
    try:
        code, said = ansible_playbook("-i", off, "playbooks/fidelity.yml")
        assert [table.read_bytes() for table in tables] == before
    finally:
        for table, content in zip(tables, before, strict=True):
            table.write_bytes(content)
    assert code != 0
    assert "sender1, receiver1, router do not answer by SSH" in unfolded(said)


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


def test_an_inventory_for_physical_hosts_is_checked_without_its_secrets(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(REPOSITORY / "inventory/example", mine)
    (mine / "known_hosts").write_text("192.0.2.11 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5\n")
    code, said = playbook("-i", mine, "playbooks/validate_inventory.yml")
    assert code != 0
    assert "parse" not in said
    assert "influxdb_admin_password is missing" in said
    vault = "{name}: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  00\n"
    names = ("influxdb_admin_password", "influxdb_writer_password")
    (mine / "group_vars/all/vault.yml").write_text("".join(vault.format(name=name) for name in names))
    code, said = playbook("-i", mine, "playbooks/validate_inventory.yml")
    assert code == 0, said


def test_what_is_asked_of_a_run_is_no_variable_of_the_inventory() -> None:
    asked = {
        name
        for playbook in ("run", "virtual")
        for name in re.findall(
            r"(run_\w+) \| default\(omit\)", (REPOSITORY / f"playbooks/{playbook}.yml").read_text()
        )
    }
    assert asked == ASKED
    variables = [argument for name in sorted(ASKED) for argument in ("-e", f"{name}=1")]
    code, said = ansible_playbook("-i", "inventory/vtime", "playbooks/validate_inventory.yml", *variables)
    assert code == 0, said


def test_a_run_of_years_is_asked_about(tmp_path: Path) -> None:
    text = (REPOSITORY / "scenarios/two_flow_fairness.yml").read_text()
    scenario = tmp_path / "two_flow_fairness.yml"
    scenario.write_text(text.replace("duration: 30s\n", "duration: 100000h\n"))
    results = tmp_path / "results"
    asked = ("playbooks/run.yml", "-e", f"scenario={scenario}", "-e", f"results_dir={results}")
    code, said = ansible_playbook(*asked)
    assert code != 0
    assert "two_flow_fairness takes 100000 h" in unfolded(said)
    assert "If that is meant, allow it: -e run_at_most=100001h" in unfolded(said)
    assert not results.exists()
    code, said = ansible_playbook(*asked, "--check", "-e", "run_at_most=100001h")
    assert "takes 100000 h" not in unfolded(said)
