"""An A/B whose sides are kernels of virtual time, which a stand-in for ansible-playbook runs."""

from __future__ import annotations

import importlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from experiments import GOODPUT, LAB, Ab, flat
from recipes import trees
from synthetic import REPOSITORY

from dumbbell import experiment, suite
from dumbbell.compare.design import rounds
from dumbbell.experiment import Asked
from dumbbell.kernels import find
from dumbbell.plan import Inventory, Plan, plan

TIMEOUT_S = 60
VTIME = REPOSITORY / "inventory" / "vtime"
NAMES = ("linux@main", "linux@next")
SIX = rounds(NAMES, 6, 1)


class Kernels(Ab):
    """``fab ab`` of two branches of a git tree, whose kernels are built already."""

    name = "ab_x_linux@main_linux@next"

    def __init__(self, collected: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(collected, folder, monkeypatch)
        monkeypatch.setattr(importlib.import_module("dumbbell.kernels.build"), "KERNELS", folder / "kernels")
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # rounds one after the other, in order
        self.linux = trees.make(folder / "src" / "linux")
        trees.git(self.linux, "checkout", "--quiet", "-b", "next")
        trees.commit(self.linux, "a change", net__a_c="two\n")
        self.kernels = [f"{self.linux}@main", f"{self.linux}@next"]
        for kernel in self.kernels:
            find(kernel).result.mkdir(parents=True)

    def planned(self, side: str, seed: int) -> Plan:
        return plan(self.scenario, Inventory.read(VTIME), None, seed)

    def alter(self, run_dir: Path) -> None:
        manifest = json.loads((run_dir / "manifest.json").read_text())
        manifest["digests"] = {"tcp_info": "the same"}
        (run_dir / "manifest.json").write_text(json.dumps(manifest))

    def run(self, *kernels: str, **options: Any) -> tuple[int | str, str]:
        asked = GOODPUT | {"rounds": "6", "inventory": str(VTIME)} | options
        return self.fab(kernel=list(kernels or self.kernels), **asked)


@pytest.fixture
def ab(collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    return Kernels(collected, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("kernels/lab.yml", "lab.yml"),
        ("kernels/lab.yml, tcp.mbox,patches/7.2/", "lab.yml+tcp.mbox+7.2"),
        ("kernels/lab.yml,/src/linux@v6.18..topic", "lab.yml+linux@v6.18..topic"),
        ("/src/linux@topic/one", "linux@topic-one"),
        ("~/linux", "linux"),
        ("./", "here"),
        ("../here/..", "src"),
        ("https://host/net/linux.git@v6.18", "linux@v6.18"),
        ("linux-source-6.12=6.12.9-1~deb12u1", "linux-source-6.12=6.12.9-1~deb12u1"),
    ],
)
def test_the_side_of_a_kernel_has_a_name_that_can_be_a_directory_s(
    kernel: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "src" / "here"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    assert Asked(Path("x.yml"), [], VTIME, kernels=[kernel]).sides == [name]


def test_each_round_runs_each_kernel_with_the_same_seed(ab: Kernels) -> None:
    for one in SIX:
        for side in one.sides:
            ab.leaves(one, side)
    status, said = ab.run()
    assert (status, ab.playbook.left) == (0, 0)
    kernels = dict(zip(NAMES, ab.kernels, strict=True))
    assert [(run["playbook"], run["kernel"], run["run_seed"]) for run in ab.playbook.asked] == [
        ("playbooks/virtual.yml", kernels[side], str(one.seed)) for one in SIX for side in one.sides
    ]
    assert "Does goodput of flow1 differ between linux@main, linux@next?" in said
    assert (
        "No difference of 2 % or more: with linux@next, goodput of flow1 is the same as with linux@main in "
        "all 6 rounds."
    ) in flat(said)
    assert "all samples of linux@next are the same as those of linux@main, to the byte" in flat(said)
    # Written down is what the branches were.
    written = json.loads((ab.results / "ab.json").read_text())["sides"]
    assert {side: arm["built"] for side, arm in written.items()} == {
        side: find(kernel).result.name for side, kernel in kernels.items()
    }


def test_all_cores_run_rounds_to_the_last(ab: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in SIX:
        for side in one.sides:
            ab.leaves(one, side)
    kernels = dict(zip(NAMES, ab.kernels, strict=True))
    order = [(one.seed, kernels[side]) for one in SIX for side in one.sides]
    entry, turns, all_cores = suite.run_entry, threading.Condition(), threading.Barrier(2)
    begun: list[tuple[int, str]] = []

    def run_entry(*arguments: Any, **options: Any) -> None:
        asked = (options["seed"], options["kernel"])
        with turns:  # what stands for the playbook has results in order
            assert turns.wait_for(lambda: order[len(begun)] == asked, TIMEOUT_S)
            entry(*arguments, **options)
            begun.append(asked)
            turns.notify_all()
        if order.index(asked) >= len(NAMES):
            all_cores.wait(TIMEOUT_S)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(experiment, "run_entry", run_entry)
    assert ab.run()[0] == 0


def test_an_ab_does_not_go_on_with_a_branch_that_has_moved(ab: Kernels) -> None:
    for _ in range(3):
        ab.playbook.leaves_nothing()
    assert "round 1 was not valid in 3 attempts" in str(ab.run()[0])
    was, begun = find(ab.kernels[1]).result.name, len(ab.playbook.asked)
    trees.commit(ab.linux, "another change", net__a_c="three\n")
    status, _ = ab.run()
    now = find(ab.kernels[1]).result.name
    assert now != was
    assert str(status) == (
        f"{ab.kernels[1]} is no longer the kernel that results/{ab.name} was begun with: it was {was}, and "
        f"is {now}. Set its branch, files or patches back to go on, or begin another: --name NAME"
    )
    assert len(ab.playbook.asked) == begun
    trees.git(ab.linux, "reset", "--quiet", "--hard", "HEAD^")
    ab.playbook.leaves_nothing()
    assert "round 1 was not valid" in str(ab.run()[0])


def test_a_branch_that_moves_while_rounds_are_run_ends_them(
    ab: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = suite.run_entry

    def run_entry(*arguments: Any, **options: Any) -> None:
        entry(*arguments, **options)
        trees.commit(ab.linux, "another change", net__a_c="three\n")

    monkeypatch.setattr(experiment, "run_entry", run_entry)
    ab.leaves(SIX[0], SIX[0].sides[0])
    assert "is no longer the kernel" in str(ab.run()[0])
    assert len(ab.playbook.asked) == 1


def test_an_ab_goes_on_only_with_the_kernels_that_it_was_begun_with(ab: Kernels) -> None:
    for _ in range(3):
        ab.playbook.leaves_nothing()
    ab.run()
    elsewhere = trees.make(ab.folder / "elsewhere" / "linux")
    other = [f"{elsewhere}@main", ab.kernels[1]]
    was, now = ", ".join(ab.kernels), ", ".join(other)
    assert f"begun with other options: sides {was}, now {now}. Leave them out" in str(ab.run(*other)[0])
    now = ", ".join(f"{kernel} with b" for kernel in ab.kernels)
    assert f"sides {was}, now {now}." in str(ab.run(profile="b", name=ab.name)[0])
    assert "--rounds 6, now 8" in str(ab.run(rounds="8")[0])


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((), {}, "name at least two sides: two profiles of the scenario, or two kernels, each with --kernel; "
         "none was named"),
        (("a",), {}, "each with --kernel; only a was named"),
        ((), {"kernel": ["kernels/lab.yml"]}, "each with --kernel; only kernels/lab.yml was named"),
        (("a", "b"), {"kernel": ["x.yml", "y.yml"]}, "sides are profiles or kernels: a, b, and x.yml, y.yml "
         "were named. A profile that all kernels run is --profile NAME"),
        (("a",), {"kernel": ["x.yml", "y.yml"], "profile": "b"}, "sides are profiles or kernels: a, b, and"),
        (("a", "b"), {"profile": "c"}, "--profile c is what all kernels run, and no --kernel was named"),
        ((), {"kernel": ["one/x.yml", "two/x.yml"]}, "2 sides have the name x.yml: one/x.yml, two/x.yml. "
         "Name each side once, and kernels by files or trees of different names"),
        ((), {"kernel": ["x.yml", "y.yml"], "inventory": str(LAB)}, f"{LAB}: --kernel is of virtual time "
         "(--inventory inventory/vtime); on hosts give each kernel a profile"),
        ((), {"kernel": ["none.yml", "y.yml"]}, "none.yml is no file: name a recipe"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_anything_is_run(
    ab: Kernels, arguments: tuple[str, ...], options: dict[str, Any], said: str
) -> None:
    status, _ = ab.fab(*arguments, **(GOODPUT | {"rounds": "6", "inventory": str(VTIME)} | options))
    assert said in str(status)
    assert ab.playbook.asked == []
    assert not ab.results.exists()


def test_kernels_may_run_a_profile(ab: Kernels) -> None:
    assert "the scenario has no profile d" in str(ab.run(profile="d")[0])
    for _ in range(3):
        ab.playbook.leaves_nothing()
    ab.run(profile="b")
    assert {run["profile"] for run in ab.playbook.asked} == {"b"}
    assert (ab.results.with_name("ab_x_b_linux@main_linux@next") / "ab.json").exists()
