"""Hosts are given back, whatever becomes of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from playbooks import ansible_playbook, put_first

ROUTER = """\
    routers: {hosts: {router: {experiment_interfaces: {left: {device: none1, address: 198.18.1.1/24}}}}}
"""
HOSTS = f"""\
testbed:
  vars:
    {{ansible_connection: local, management_interface: lo, experiment_interfaces: {{}}, influxdb_url: null,
     clock_server: sender1}}
  children:
    senders: {{hosts: {{sender1: }}}}
{ROUTER}    archives:
"""
AGENT = """\
#!/bin/sh
echo "$1" >>{said}
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the hosts' agent was told, a word in each line; that agent does nothing else."""
    said = tmp_path / "said"
    put_first(monkeypatch, tmp_path / "bin/dumbbell-agent", AGENT.format(said=said))
    return said


def test_a_host_that_was_not_provisioned_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = os.environ["PATH"].split(":")  # make's has the agent of the checkout
    without = [folder for folder in folders if not Path(folder, "dumbbell-agent").exists()]
    monkeypatch.setenv("PATH", ":".join(without))
    (tmp_path / "hosts.yml").write_text(HOSTS)
    code, text = ansible_playbook(
        *("-i", tmp_path / "hosts.yml", "tests/integration/playbooks/points.yml"),
        *("-e", f"run_dir={tmp_path / 'none'}", "-e", "ansible_python_interpreter=/usr/bin/python3"),
    )
    assert code != 0
    assert "it has no dumbbell-agent: provision it first (playbooks/provision.yml)" in text, text
    assert "PLAY [Run]" not in text


def test_hosts_are_given_back_when_judging_fails(said: Path, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(HOSTS.replace(ROUTER, ""))
    code, text = ansible_playbook(
        *("-i", tmp_path / "hosts.yml", "tests/integration/playbooks/points.yml"),
        *("-e", f"run_dir={tmp_path / 'none'}", "-e", "ansible_python_interpreter=/usr/bin/python3"),
    )
    assert code != 0
    assert f"{tmp_path}/none" in text.partition("[dumbbell.testbed.run : Write the verdict]")[2]
    # Before the first point, in it, and while the host gets the state of the inventory.
    assert said.read_text().split() == ["lock", "lock", "lock", "unlock"], text


def test_a_router_whose_path_cannot_be_given_back_is_given_back_itself(said: Path, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    code, text = ansible_playbook(
        *("-i", tmp_path / "hosts.yml", "tests/integration/playbooks/points.yml"),
        *("-e", f"run_dir={tmp_path / 'none'}", "-e", "ansible_python_interpreter=/usr/bin/python3"),
    )
    assert code != 0
    assert (
        "router: this host has no interface none1"
        in text.partition("[dumbbell.testbed.run : Write the verdict]")[2]
    ), text
    words = said.read_text().split()
    assert words.count("unlock") == 2, text
    assert words[-1] == "unlock"
