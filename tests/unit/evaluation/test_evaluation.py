"""Evaluations whose runs a stand-in leaves: what is run, what is used again, what is told."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from stand_in import Playbook
from synthetic import REPOSITORY

from dumbbell.cli import commands
from dumbbell.evaluation.criteria import load
from dumbbell.evaluation.measured import NOT_RUN, measure
from dumbbell.evaluation.subject import Subject
from dumbbell.plan import Inventory, plan
from dumbbell.run.directory import RunDir

VTIME = REPOSITORY / "inventory" / "vtime"
FAMILY = """\
name: two
title: Two flows
shows: something
lacks: much
scenario: two_flow_fairness.yml
criteria:
  - {name: fast, title: Is fast, metric: goodput, flows: [flow1], source: RFC 5166,
     relative: {to: [cubic], min: 0.9}}
  - {name: short-delay, title: Is not late, metric: rtt, max: 1s, source: RFC 5166}
"""


class Evaluated:
    """``fab evaluate`` with two criteria of one scenario, in a directory of its own."""

    def __init__(self, collected: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
        (folder / "ansible.cfg").touch()
        self.folder, self._collected, self._left = folder, collected, 0
        self.scenario = folder / "two_flow_fairness.yml"
        text = (REPOSITORY / "scenarios/two_flow_fairness.yml").read_text().partition("profiles:")[0]
        self.scenario.write_text(
            text.replace("congestion_control: cubic", "congestion_control: $control")
            + "matrix: {control: cubic}\n"
        )
        (folder / "criteria").mkdir()
        (folder / "criteria" / "two.yml").write_text(FAMILY)
        self.playbook = Playbook.install(folder / "bin", monkeypatch)

    def leaves(self, control: str, *, faster: float = 1.0, state: str = "passed") -> None:
        """The next run is of this control, with so many times the goodput of the collected run."""
        target = self.folder / "planned" / self.scenario.name
        Subject(control).write_scenario(self.scenario, target)
        planned = plan(target, Inventory.read(VTIME))
        verdict = json.loads((self._collected / "verdict.json").read_text())
        files = {"plan.json": planned.to_json().decode()}
        files["verdict.json"] = json.dumps(verdict | {"state": state, "reasons": ["why not"]})
        files["report.html"] = "<html></html>"
        self._left += 1
        copy = Path(shutil.copytree(self._collected, self.folder / f"left_{self._left}"))
        rows = pl.read_parquet(copy / "tcp_info.parquet")
        grown = [(pl.col(c) * faster).cast(rows.schema[c]) for c in ("bytes_received", "bytes_acked")]
        rows.with_columns(grown).write_parquet(copy / "tcp_info.parquet")
        self.playbook.leaves(planned.scenario, files, copy)

    def run(self, candidates: str, **options: Any) -> tuple[int | str, str]:
        """Exit status, and what was printed."""
        said = io.StringIO()
        asked = {"criteria": "criteria", "inventory": str(VTIME)} | options
        with redirect_stdout(said):
            try:
                commands.evaluate.body(None, candidates, **asked)
            except SystemExit as end:
                return end.code if isinstance(end.code, str) else int(end.code or 0), said.getvalue()
        return 0, said.getvalue()

    @property
    def begun(self) -> int:
        """How many runs were asked for."""
        return len(self.playbook.asked)


@pytest.fixture
def evaluated(collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluated:
    return Evaluated(collected, tmp_path, monkeypatch)


def test_a_candidate_that_is_slower_fails_that_criterion(evaluated: Evaluated) -> None:
    evaluated.leaves("bbr", faster=0.5)
    evaluated.leaves("cubic")
    code, said = evaluated.run("bbr")
    assert code == 1, said
    assert "bbr passes 1 of 2 criteria; it fails fast." in said
    folder = evaluated.folder / "results" / "evaluation_bbr_quick"
    fast, late = json.loads((folder / "summary.json").read_text())["candidates"]["bbr"]["criteria"]
    assert (fast["name"], fast["state"], late["state"]) == ("fast", "fail", "pass")
    (point,) = fast["points"]
    assert point["value"] == pytest.approx(point["others"]["cubic"] / 2, rel=0.01)
    assert (folder / point["report"]).is_file()
    with (folder / "criteria.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["criterion"], row["state"]) for row in rows] == [("fast", "fail"), ("short-delay", "pass")]
    assert r"at least 0.9 x cubic" in (folder / "criteria.tex").read_text()
    page = (folder / "evaluation.html").read_text()
    assert "Is fast" in page
    assert point["report"] in page


def test_what_was_run_is_used_again(evaluated: Evaluated) -> None:
    evaluated.leaves("bbr")
    evaluated.leaves("cubic")
    assert evaluated.run("bbr")[0] == 0
    code, said = evaluated.run("bbr")
    assert (code, evaluated.begun) == (0, 2)
    assert "bbr: its results are there\ncubic: its results are there" in said
    evaluated.leaves("reno", faster=2.0)
    code, said = evaluated.run("reno,bbr", against="reno")
    assert (code, evaluated.begun) == (1, 3)
    assert "reno passes 2 of 2 criteria." in said
    assert "bbr passes 1 of 2 criteria; it fails fast." in said


def test_another_module_of_the_same_name_is_run_anew(evaluated: Evaluated) -> None:
    module = evaluated.folder / "tcp_mine"
    module.mkdir()
    (module / "Makefile").write_text("obj-m := tcp_mine.o\n")
    source = Subject.of(str(module))
    before = source.digest(VTIME)
    (module / "tcp_mine.c").write_text("int changed;\n")
    assert source.digest(VTIME) != before


def test_a_run_that_is_not_valid_gives_no_answer(evaluated: Evaluated) -> None:
    evaluated.leaves("bbr", state="invalid")
    evaluated.leaves("cubic")
    code, said = evaluated.run("bbr")
    assert code == 2
    assert "there is no answer for fast, short-delay" in said
    assert "invalid: why not" in said


def test_a_reference_that_is_not_valid_gives_no_answer_where_it_is_needed(evaluated: Evaluated) -> None:
    evaluated.leaves("bbr")
    evaluated.leaves("cubic", state="invalid")
    code, said = evaluated.run("bbr")
    assert code == 2
    assert "passes 1 of 2 criteria; there is no answer for fast." in said


def test_a_candidate_that_cannot_be_run_is_told_at_once(evaluated: Evaluated) -> None:
    evaluated.playbook.leaves_nothing()
    code, said = evaluated.run("bbr")
    assert (code, evaluated.begun) == (2, 1)
    assert "bbr cannot be run: it did not begin; see results/evaluation_bbr_quick/playbooks.log" in said


def test_points_of_a_run_that_did_not_begin_were_not_run(evaluated: Evaluated) -> None:
    wanted = plan(REPOSITORY / "scenarios" / "evaluation" / "limited.yml", Inventory.read(VTIME))
    (file,) = load(evaluated.folder / "criteria")
    found = measure(wanted, None, file.family.criteria)
    assert [(at.value, at.why) for at in found["short-delay"].values()] == [(None, NOT_RUN)] * 2


def test_an_interrupted_run_goes_on(evaluated: Evaluated) -> None:
    evaluated.leaves("bbr")
    evaluated.leaves("cubic")
    of = Subject("bbr")
    home = evaluated.folder / "results" / "evaluation_runs" / f"bbr-{of.digest(VTIME)}"
    target = home / "scenarios" / evaluated.scenario.name
    of.write_scenario(evaluated.scenario, target)
    begun = RunDir.create(plan(target, Inventory.read(VTIME)), target, home)
    assert evaluated.run("bbr")[0] == 0
    assert evaluated.playbook.asked[0]["run"] == str(begun.dir)


@pytest.mark.parametrize(
    ("candidates", "options", "said"),
    [
        ("bbr", {"inventory": str(REPOSITORY / "inventory" / "lab")}, "is of real time"),
        ("bbr", {"profile": "slow"}, "--profile slow: there are quick and full"),
        ("bbr,bbr", {}, "bbr: name each candidate once"),
        ("x.bpf.o", {}, "programs of BPF cannot be evaluated"),
    ],
)
def test_a_mistake_is_told(evaluated: Evaluated, candidates: str, options: dict[str, str], said: str) -> None:
    code, told = evaluated.run(candidates, **options)
    assert (code, said in told) == (2, True), told
