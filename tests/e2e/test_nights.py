"""Nights in the lab: a change of the senders is found, confirmed and told, and so is that it was undone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lab import LAB, Lab
from runs import in_turn

from dumbbell.compare.comparison import Comparison
from dumbbell.nightly.history import History
from dumbbell.run.record import read_json
from playbooks import REPOSITORY, ansible_playbook

pytestmark = [pytest.mark.e2e, pytest.mark.long]

BETA = "/sys/module/tcp_cubic/parameters/beta"  # of 1024; 717 is the kernel's own
BASELINE = 8
SCENARIO = "tests/e2e/night.yml"
SUITE = f"""
name: nights
title: Nights of a minute
least_change: 5%
runs:
  - {{scenario: {SCENARIO}}}
"""
MOST = 6  # nights until a change is told
TIMEOUT_S = 3600


@dataclass(frozen=True)
class Nights:
    """A home for nights."""

    home: Path

    def passes(self) -> tuple[int, dict[str, Any]]:
        """Exit status of a night, and what it tells."""
        suite = str(self.home / "nights.yml")
        night = [sys.executable, "-m", "dumbbell.cli.nightly", suite, "--home", str(self.home)]
        done = subprocess.run(night, cwd=REPOSITORY, timeout=TIMEOUT_S, check=False)
        return done.returncode, read_json(self.home / "night.json")

    def goodput(self) -> tuple[int, str | None]:
        """A night's exit status, and what it says of the goodput."""
        code, told = self.passes()
        states = [found["state"] for found in told["findings"] if found["metric"] == "goodput"]
        return code, states[0] if states else None


@pytest.fixture(scope="module")
def nights(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nights]:
    home = tmp_path_factory.mktemp("nights")
    (home / "nights.yml").write_text(SUITE)
    yield Nights(home)
    lab.ssh("sender1", f"echo 717 >{BETA}")


def test_nights_that_are_alike_are_well(nights: Nights) -> None:
    assert [nights.goodput() for _ in range(BASELINE)] == [(0, None)] * BASELINE


def test_a_change_is_told_and_stays_open(lab: Lab, nights: Nights) -> None:
    lab.ssh("sender1", f"echo 200 >{BETA}")
    told = [nights.goodput()]
    while told[-1] != (1, "new") and len(told) < MOST:
        told.append(nights.goodput())
    assert told[-1] == (1, "new"), told
    assert nights.goodput() == (1, "open")


def test_that_it_was_undone_is_told_once(lab: Lab, nights: Nights) -> None:
    lab.ssh("sender1", f"echo 717 >{BETA}")
    told = [nights.goodput()]
    while told[-1] == (1, "open") and len(told) < MOST:
        told.append(nights.goodput())
    assert told[-1] == (0, "recovered"), told
    assert nights.goodput() == (0, None)


def test_a_host_that_is_off_is_named_and_the_next_night_runs(lab: Lab, nights: Nights) -> None:
    lab.run("receiver1", "systemctl poweroff")
    code, told = nights.passes()
    assert code == 2
    (run,) = told["runs"]
    assert run["state"] in ("aborted", "invalid")
    assert any("receiver1" in reason for reason in run["reasons"]), run["reasons"]
    code, said = ansible_playbook("playbooks/lab_up.yml", timeout_s=600)
    assert code == 0, said[-2000:]
    assert nights.goodput() == (0, None)


@pytest.fixture(scope="module")
def night_before(nights: Nights) -> str:
    """A night on the kernel that the lab has by itself."""
    code, told = nights.passes()
    assert code == 0
    return str(told["night"])


@pytest.mark.kernels
def test_another_kernel_goes_on_with_the_series(nights: Nights, night_before: str, own_kernel: Lab) -> None:
    _, told = nights.passes()
    with closing(History(nights.home / "history.sqlite")) as history:
        of_both = [one for one in history.series() if {night_before, told["night"]} <= {*one.nights}]
        assert of_both
        kernels = [history.conditions(tested)["sender1 kernel"] for tested in of_both[0].tested[-2:]]
    assert kernels[0] != kernels[1] == own_kernel.ssh("sender1", "uname -r").strip()


@pytest.mark.kernels
def test_two_kernels_in_turn_make_a_table(own_kernel: Lab, tmp_path: Path) -> None:
    kernels = {
        "former": (LAB / "kernels" / "user-mode-linux" / "release").read_text().strip(),
        "own": own_kernel.ssh("sender1", "uname -r").strip(),
    }
    profiles = "".join(
        f"  {name}: {{hosts: {{testbed: {{kernel: {of}}}}}}}\n" for name, of in kernels.items()
    )
    scenario = tmp_path / "night.yml"
    scenario.write_text(f"{(REPOSITORY / SCENARIO).read_text()}\nprofiles:\n{profiles}")
    former, own = in_turn(scenario, ("former", "own"), 1, REPOSITORY / "inventory" / "lab", tmp_path)
    said = Comparison(former, own, ("former", "own")).text()
    assert any(line.split()[1:3] == ["goodput", "flow"] for line in said.splitlines()), said
    assert all(of in said for of in kernels.values()), said
