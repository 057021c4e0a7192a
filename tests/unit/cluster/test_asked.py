"""What --cluster takes, and what is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dask_processes import processes
from synthetic import REPOSITORY

from dumbbell.cluster import ADDRESS, ClusterError
from dumbbell.cluster.asked import connected, shared, ssh_hosts
from dumbbell.inventory import Inventory
from dumbbell.scenario import ScenarioError
from dumbbell.suite import at_once

VTIME = REPOSITORY / "inventory/vtime"


@pytest.mark.parametrize("asked", ["node1", "pbs:queue", "slurm:", "tcp"])
def test_other_words_are_refused_with_those_that_there_are(asked: str) -> None:
    with pytest.raises(ClusterError, match=r"write ssh:HOSTS\.yml, slurm:PARTITION"), connected(asked):
        pass


def test_a_number_of_jobs_is_one() -> None:
    with (
        pytest.raises(ClusterError, match="slurm:long:many: many is no number"),
        connected("slurm:long:many"),
    ):
        pass


def test_a_scheduler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dumbbell.cluster.asked._ANSWER_S", 1)
    told = r"tcp://127\.0\.0\.1:1 cannot be had"
    with pytest.raises(ClusterError, match=told), connected("tcp://127.0.0.1:1"):
        pass


def test_the_example_of_hosts_can_be_read(tmp_path: Path) -> None:
    assert ssh_hosts(REPOSITORY / "clusters/ssh.yml").hosts == ["node1", "node2"]
    (wrong := tmp_path / "hosts.yml").write_text("hosts: [a]\nworld: 3\n")
    with pytest.raises(ScenarioError, match=r"hosts.yml:2:\d+: world: "):
        ssh_hosts(wrong)


def test_real_hosts_take_no_cluster() -> None:
    lab = REPOSITORY / "inventory/lab"
    with pytest.raises(ClusterError, match="lab is of real time"), shared("tcp://127.0.0.1:1", lab):
        pass


def test_playbooks_of_a_command_share_one_cluster(tmp_path: Path) -> None:
    inventory = Inventory.read(VTIME)
    alone = at_once(inventory)
    with processes(tmp_path) as cluster, shared(cluster.address, VTIME):
        assert os.environ[ADDRESS] == cluster.address
        assert at_once(inventory) > alone
    assert ADDRESS not in os.environ
    with shared("", VTIME):
        assert ADDRESS not in os.environ
