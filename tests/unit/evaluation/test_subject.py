"""Candidates: what a user may name, what identifies their results, and their scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import REPOSITORY

from dumbbell.evaluation import EvaluationError
from dumbbell.evaluation.subject import Subject
from dumbbell.plan import Inventory, plan

VTIME = REPOSITORY / "inventory" / "vtime"


def module(tmp_path: Path, makefile: str = "obj-m := tcp_mine.o\n") -> Path:
    folder = tmp_path / "tcp_mine"
    folder.mkdir()
    (folder / "Makefile").write_text(makefile)
    (folder / "tcp_mine.c").write_text("int one;\n")
    return folder


def test_controls_and_modules(tmp_path: Path) -> None:
    folder = module(tmp_path)
    assert Subject.of("bbr") == Subject("bbr")
    assert Subject.of(str(folder)) == Subject("mine", folder)
    assert Subject.of(f"{folder}:other") == Subject("other", folder)
    assert Subject.of("cubic", "kernels/lab.yml").name == "cubic on lab.yml"


def test_the_project_s_own_modules_are_some() -> None:
    folder = REPOSITORY / "modules" / "tcp_recovery"
    assert Subject.of(f"{folder}:cubic_prr") == Subject("cubic_prr", folder)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("mine/tcp.bpf.o", "programs of BPF cannot be evaluated"),
        ("no/such/place", "no/such/place is no directory of a module"),
        ("Bbr!", "'Bbr!' is no name of a congestion control"),
        ("bbr:two", "bbr is no directory of a module"),
    ],
)
def test_what_is_neither_is_refused(named: str, said: str) -> None:
    with pytest.raises(EvaluationError, match=said):
        Subject.of(named)


def test_a_directory_of_another_module_is_refused(tmp_path: Path) -> None:
    folder = module(tmp_path, "obj-m := tcp_other.o\n")
    with pytest.raises(EvaluationError, match=r"needs a Makefile with `obj-m := tcp_mine.o`"):
        Subject.of(str(folder))


def test_results_are_known_by_the_module_s_source(tmp_path: Path) -> None:
    folder = module(tmp_path)
    of = Subject.of(str(folder))
    before = of.digest(VTIME)
    assert Subject.of(str(folder)).digest(VTIME) == before != Subject.of("mine").digest(VTIME)
    (folder / "tcp_mine.c").write_text("int two;\n")
    assert of.digest(VTIME) != before


def test_a_scenario_asks_for_the_control_and_its_module(tmp_path: Path) -> None:
    target = tmp_path / "scenarios" / "limited.yml"
    of = Subject("mine", module(tmp_path))
    of.write_scenario(REPOSITORY / "scenarios" / "evaluation" / "limited.yml", target)
    (point, _) = plan(target, Inventory.read(VTIME)).points
    assert {flow.congestion_control for flow in point.phase("measurement").flows} == {"mine"}
    assert {tuple(host.state.modules) for host in point.hosts.values()} == {("tcp_mine",)}
