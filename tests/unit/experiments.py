"""An A/B in which a stand-in for ansible-playbook leaves the runs that a test wants."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from stand_in import Playbook
from synthetic import REPOSITORY

from dumbbell.cli import commands
from dumbbell.compare.design import Round
from dumbbell.plan import Inventory, Plan, plan

LAB = REPOSITORY / "inventory" / "lab"
PROFILES = """\
profiles:
  a: {hosts: {testbed: {sysctls: {net.ipv4.tcp_sack: 0}}}}
  b: {}
  c: {title: as b}
"""
SETTINGS = "raw/sender1/measurement/observed.json"
GOODPUT = {"metric": "goodput", "of": "flow1"}


def flat(text: str) -> str:
    return " ".join(text.split())


class Ab:
    """``fab ab`` of a scenario with the profiles a, b and c, in a directory of its own."""

    inventory = LAB
    name = "ab_x_a_b"

    def __init__(self, collected: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        self.folder, self._collected = folder, collected
        (folder / "ansible.cfg").touch()  # as a checkout has it: the inventory that was read is kept
        self.scenario = folder / "x.yml"
        text = (REPOSITORY / "scenarios/two_flow_fairness.yml").read_text()
        self.scenario.write_text(text.partition("profiles:")[0] + PROFILES)
        self.playbook = Playbook.install(folder / "bin", monkeypatch)
        self.results = folder / "results" / self.name
        self._left = 0

    def planned(self, side: str, seed: int) -> Plan:
        return plan(self.scenario, Inventory.read(self.inventory), side, seed)

    def alter(self, run_dir: Path) -> None:
        """Change what all runs leave."""

    def leaves(
        self,
        one: Round,
        side: str,
        *,
        state: str = "passed",
        faster: float = 1.0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """The next run has this state, this goodput over that of the collected run, and these settings."""
        planned = self.planned(side, one.seed)
        verdict = json.loads((self._collected / "verdict.json").read_text())
        reasons = [] if state == "passed" else ["why not"]
        files = {"plan.json": planned.to_json().decode()}
        files["verdict.json"] = json.dumps(verdict | {"state": state, "reasons": reasons})
        self._left += 1
        copy = Path(shutil.copytree(self._collected, self.folder / f"left_{self._left}"))
        self.alter(copy)
        rows = pl.read_parquet(copy / "tcp_info.parquet")
        grown = [(pl.col(c) * faster).cast(rows.schema[c]) for c in ("bytes_received", "bytes_acked")]
        rows.with_columns(grown).write_parquet(copy / "tcp_info.parquet")
        file = copy / SETTINGS
        observed = json.loads(file.read_text())
        own = {"net.ipv4.tcp_sack": "0"} if side == "a" else settings or {}
        for reading in observed.values():
            reading["settings"] |= own
        file.write_text(json.dumps(observed))
        self.playbook.leaves(planned.scenario, files, copy)

    def leaves_round(self, one: Round, faster: float = 1.0, **more: Any) -> None:
        """A valid round, in which b is so much faster than a."""
        for side in one.sides:
            self.leaves(one, side, faster=faster if side == "b" else 1.0, **more)

    def run(self, *sides: str, **options: Any) -> tuple[int | str, str]:
        """Exit status, or an error's message, and what was printed; by default of six rounds of a and b."""
        first, second, *also = sides or ("a", "b")
        return self.fab(first, second, also, **(GOODPUT | {"rounds": "6", "inventory": str(LAB)} | options))

    def fab(self, *arguments: Any, **options: Any) -> tuple[int | str, str]:
        """The same of any arguments."""
        said = io.StringIO()
        with redirect_stdout(said):
            try:
                commands.ab.body(None, "x.yml", *arguments, **options)
            except SystemExit as end:
                return end.code if isinstance(end.code, str) else int(end.code or 0), said.getvalue()
        return 0, said.getvalue()

    @property
    def order(self) -> list[tuple[str, str]]:
        """Side and seed of each run that was begun."""
        return [(asked["profile"], asked["run_seed"]) for asked in self.playbook.asked]
