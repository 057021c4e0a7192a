"""A stand-in for ansible-playbook: it leaves run directories as a test wants, and notes what was asked."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAM = f"""#!{sys.executable}
import json, os, shutil, sys
from pathlib import Path

home = Path(__file__).parent
asked = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
asked["playbook"] = next(word for word in sys.argv[1:] if word.endswith(".yml"))
with (home / "asked.jsonl").open("a") as file:
    file.write(json.dumps(asked) + "\\n")
wanted = json.loads((home / "wanted.json").read_text())
if not wanted:
    sys.exit("nothing more was wanted")
left, rest = wanted[0], wanted[1:]
(home / "wanted.json").write_text(json.dumps(rest))
if left is None:
    sys.exit("no host answers")
number = len((home / "asked.jsonl").read_text().splitlines())
run_dir = Path(asked.get("run") or f"{{asked['results_dir']}}/20260101T{{number:06d}}Z_{{left['scenario']}}")
if left["copy"]:
    shutil.copytree(left["copy"], run_dir, dirs_exist_ok=True)
run_dir.mkdir(parents=True, exist_ok=True)
for name, content in left["files"].items():
    (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
    (run_dir / name).write_text(content)
"""


@dataclass(frozen=True)
class Playbook:
    """What it is to leave, and what it was asked for."""

    home: Path

    @classmethod
    def install(cls, home: Path, monkeypatch: pytest.MonkeyPatch) -> Playbook:
        """Put it beside what is then taken for Python's own program."""
        home.mkdir()
        for name in ("python", "ansible-inventory"):
            (home / name).symlink_to(Path(sys.executable).with_name(name))
        (home / "ansible-playbook").write_text(PROGRAM)
        (home / "ansible-playbook").chmod(0o755)
        (home / "wanted.json").write_text("[]")
        monkeypatch.setattr(sys, "executable", str(home / "python"))
        return cls(home)

    def leaves(self, scenario: str, files: dict[str, str], copy: Path | None = None) -> None:
        """One more run: its files, over those of another directory."""
        self._more({"scenario": scenario, "files": files, "copy": None if copy is None else str(copy)})

    def leaves_nothing(self) -> None:
        """One more run, which makes no directory."""
        self._more(None)

    def _more(self, what: dict[str, Any] | None) -> None:
        wanted = self.home / "wanted.json"
        wanted.write_text(json.dumps([*json.loads(wanted.read_text()), what]))

    @property
    def asked(self) -> list[dict[str, str]]:
        """Extra variables of each call, and the playbook's name."""
        log = self.home / "asked.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    @property
    def left(self) -> int:
        """How many runs it was not asked for yet."""
        return len(json.loads((self.home / "wanted.json").read_text()))
