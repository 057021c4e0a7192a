"""Which worlds the points of a run take, and what they begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_world import scenario, virtual_inventory

from dumbbell.plan import describe, plan
from dumbbell.plan.virtual import real_s
from dumbbell.run.directory import RunDir
from dumbbell.virtual.points import full, light, why_full

ATOU = {"kind": "atou", "from": "senders[0]", "to": "receivers[0]"}
DESCRIBED = {"variables": {"nic_mtu": 1500}, "settings": {"run_arm_timeout": 120}}


def run_of(folder: Path, **more: Any) -> RunDir:
    file = scenario(folder, **more)
    return RunDir.create(plan(file, virtual_inventory()), file, folder / "results")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"sampling": {"trace": True}}, "light worlds lack traces"),
        (
            {"sampling": {"trace": True}, "flows": {"a": ATOU}},
            "light worlds lack traces and flows of kind atou",
        ),
        ({"sampling": {"ebpf": True}}, "light worlds lack eBPF"),
    ],
)
def test_a_run_takes_full_worlds_only_if_light_ones_lack_something(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    assert why_full(run_of(tmp_path, **more)) == why


def test_the_plan_says_why_it_takes_longer(tmp_path: Path) -> None:
    plain, traced = (
        plan(scenario(tmp_path, **more), virtual_inventory()) for more in ({}, {"sampling": {"trace": True}})
    )
    assert "full worlds, which traces need" in describe(traced)
    assert "full worlds" not in describe(plain)
    assert real_s(traced.points) > real_s(plain.points)


def test_a_world_sees_its_run_at_the_same_place_wherever_results_are_kept(tmp_path: Path) -> None:
    run = run_of(tmp_path, repetitions=2)
    second = run.executions[1]
    within = f"/run/results/{run.id}"
    (world,) = light(run, [second], {"sender1": DESCRIBED, "router": DESCRIBED}, ["router"])
    assert world["dir"] == str(second.dir / "world")
    assert world["readable"] == {within: str(run.dir)}
    assert world["writable"] == {f"{within}/points/002": str(second.dir)}
    assert str(tmp_path) not in str(world["light"])
    assert world["light"]["point"]["run_dir"] == f"{within}/points/002"
    assert world["light"]["variables"] == {"sender1": {"nic_mtu": 1500}, "router": {"nic_mtu": 1500}}
    assert world["light"]["settings"] == {"run_arm_timeout": 120}
    (world,) = full(run, [second], ["ansible-playbook"])
    assert world["command"][:2] == ["ansible-playbook", "dumbbell.testbed.world_point"]
    assert f"point={second.id}" in world["command"]
    assert "light" not in world


def test_each_repetition_has_random_numbers_of_its_own(tmp_path: Path) -> None:
    run = run_of(tmp_path, repetitions=2)
    first, second = full(run, run.executions, ["ansible-playbook"])
    assert first["seed"] != second["seed"]
