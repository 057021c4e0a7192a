"""Runs of scenarios in the virtual lab."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell import experiment
from dumbbell.compare.design import Arm, Design, rounds
from dumbbell.plan import Inventory, plan
from dumbbell.run.record import read_jsonl
from playbooks import ansible_playbook

RUN_TIMEOUT_S = 900
ATTEMPTS = 4
MS = 1_000_000
S = 1_000_000_000
CLOSE = 7  # of the kernel's tcp_states.h


@dataclass(frozen=True)
class Kept:
    """A run directory."""

    dir: Path

    @property
    def id(self) -> str:
        return self.dir.name

    def json(self, path: str) -> Any:
        return json.loads((self.dir / path).read_text())

    @property
    def state(self) -> str:
        return str(self.json("verdict.json")["state"])


@dataclass(frozen=True)
class Finished(Kept):
    """What a playbook left, its exit code, and what it said."""

    code: int
    output: str

    def table(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.dir / f"{name}.parquet")

    @cached_property
    def tcp_info(self) -> pl.DataFrame:
        return self.table("tcp_info")

    def facts(self, name: str) -> dict[str, Any]:
        """Measured values of the manifest's facts of this name, by subject."""
        facts = self.json("manifest.json")["facts"]
        return {fact["subject"]: fact["measured"] for fact in facts if fact["name"] == name}

    def event(self, name: str, **match: str) -> dict[str, Any]:
        """The one event of this name whose keys have these values."""
        events = read_jsonl(self.dir / "events.jsonl")
        (found,) = (e for e in events if e["event"] == name and match.items() <= e.items())
        return dict(found)


def run(scenario: Path, results: Path) -> Finished:
    """Run a scenario as users do."""
    code, said = ansible_playbook(
        "playbooks/run.yml",
        *("-e", f"scenario={scenario}", "-e", f"results_dir={results}"),
        timeout_s=RUN_TIMEOUT_S,
    )
    assert (results / "latest").exists(), f"no run directory was made:\n{said}"
    return Finished((results / "latest").resolve(), code, said)


def run_in_time(scenario: Path, folder: Path) -> Finished:
    """The first run that the machine had time for: one of a busy machine ends `invalid`, as it must."""
    for attempt in range(ATTEMPTS):
        done = run(scenario, folder / str(attempt))
        if done.state != "invalid":
            break
    return done


def in_turn(
    scenario: Path, sides: tuple[str, ...], number: int, inventory: Path, folder: Path
) -> list[list[Path]]:
    """Runs of each side, of fewer rounds than an A/B has. Those that are there are not run again."""
    read = Inventory.read(inventory)
    design = Design(
        scenario=str(scenario),
        inventory=str(inventory),
        sides={side: Arm(profile=side, plan=plan(scenario, read, side).digest) for side in sides},
        metric="goodput",
        of=plan(scenario, read, sides[0]).points[0].phase("measurement").flows[0].name,
        least=0.02,
        pilot=0,
        rounds=rounds(sides, number, 1),
        chosen=number,
    )
    return [*experiment.run(folder, design, print)[1].values()]
