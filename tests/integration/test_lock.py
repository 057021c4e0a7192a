"""Hosts are given back, whatever becomes of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from playbooks import ansible_playbook, put_first

HOSTS = """\
testbed:
  vars: {ansible_connection: local, experiment_interfaces: {}, influxdb_url: null}
  children:
    senders: {hosts: {sender1: }}
    routers: {hosts: {router: {experiment_interfaces: {left: {device: none1}, right: {device: none2}}}}}
    archives:
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
    (tmp_path / "hosts.yml").write_text(HOSTS)
    code, text = ansible_playbook(
        *("-i", tmp_path / "hosts.yml", "tests/integration/playbooks/points.yml"),
        *("-e", f"run_dir={tmp_path / 'none'}", "-e", "ansible_python_interpreter=/usr/bin/python3"),
    )
    assert code != 0
    assert f"{tmp_path}/none" in text.partition("[run : Judge what came of it]")[2]
    words = said.read_text().split()
    assert words[-2:] == ["unlock", "unlock"], text
    assert words.count("lock") == 4  # of each host, before the first point and in it
    assert "none1" not in text  # no path was asked for, and none is given back


def test_a_router_whose_path_cannot_be_given_back_is_given_back_itself(said: Path, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    code, text = ansible_playbook(
        *("-i", tmp_path / "hosts.yml", "tests/integration/playbooks/points.yml"),
        *("-e", f"run_dir={tmp_path / 'none'}", "-e", "ansible_python_interpreter=/usr/bin/python3"),
        *("-e", '{"path": {"rtt_ns": 1}}'),
    )
    assert code != 0
    assert "this host has no interface none1" in text.partition("[path : Emulate each direction")[2]
    words = said.read_text().split()
    assert words[-3:] == ["lock", "unlock", "unlock"], text
