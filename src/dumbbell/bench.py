"""Time what a user waits for. ``python -m dumbbell.bench demo``, in a checkout, writes ``bench/demo.json``.

The demo is ``make demo`` in its parts: boot the lab, build what its hosts get, bring them to their state, run
a scenario in it. The run is also divided at the changes of its state.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

from dumbbell.rundir import Event, read_jsonl

SCENARIO = Path("scenarios/two_flow_fairness.yml")
WARM_DEMO = "<= 180"


@dataclass(frozen=True)
class Row:
    """A measured value; ``spread`` is max - min of ``n`` measurements, None for a single one."""

    name: str
    value: float
    unit: str
    n: int = 1
    spread: float | None = None
    target: str | None = None

    @classmethod
    def median(cls, name: str, values: Sequence[float], unit: str, target: str | None = None) -> Self:
        """The median of several measurements, with their spread."""
        return cls(name, statistics.median(values), unit, len(values), max(values) - min(values), target)


def state_durations_s(events: Iterable[Event]) -> dict[str, float]:
    """Seconds that a run spent in each state, in order of time, from the events of its ``events.jsonl``.

    States of a phase carry its name (``armed calibration``). The last state, the verdict, has no duration; a
    state that was entered twice has the sum.
    """
    states = sorted((e for e in events if e.get("event") == "state"), key=lambda e: e["unix_ns"])
    durations: dict[str, float] = {}
    for now, then in pairwise(states):
        name = " ".join((now["state"], now.get("reason", ""))).strip()
        durations[name] = durations.get(name, 0.0) + (then["unix_ns"] - now["unix_ns"]) / 1e9
    return durations


def demo_rows(parts_s: dict[str, float], states_s: dict[str, float], *, warm: bool) -> list[Row]:
    """Rows of the demo: its parts, the states of its run, and their total, which has a target if warm."""
    kind = "warm" if warm else "cold"
    rows = [Row(f"{kind} demo: {part}", value, "s") for part, value in parts_s.items()]
    rows += [Row(f"{kind} demo: run: {state}", value, "s") for state, value in states_s.items()]
    total = Row(f"{kind} demo: total", sum(parts_s.values()), "s", target=WARM_DEMO if warm else None)
    return [*rows, total]


def to_json(rows: Sequence[Row]) -> str:
    """Content of a ``bench/*.json``: a list of objects, values to hundredths."""
    return json.dumps([asdict(row) | {"value": round(row.value, 2)} for row in rows], indent=1) + "\n"


def to_table(rows: Sequence[Row]) -> str:
    """The rows for people, one a line."""
    width = max((len(row.name) for row in rows), default=0)
    return "\n".join(
        f"{row.name:{width}}  {row.value:8.1f} {row.unit}"
        + (f"  (target {row.target})" if row.target else "")
        for row in rows
    )


def publish(rows: Sequence[Row], target: Path) -> None:
    """Print the rows, and write them to a file."""
    print(to_table(rows))
    target.parent.mkdir(exist_ok=True)
    target.write_text(to_json(rows))


def _timed(command: Sequence[str | Path]) -> float:
    """Seconds that a command takes; CalledProcessError if it fails: nothing is learnt from its time then."""
    print("$", *command, flush=True)
    began = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - began


def demo(scenario: Path, target: Path) -> None:
    """Run the demo once in the current directory, print the table, write ``target``."""
    ansible_playbook = Path(sys.executable).with_name("ansible-playbook")
    warm = any(Path(".lab").glob("image-*.img"))
    latest = Path("results/latest")
    before = latest.resolve()
    parts_s = {
        "boot": _timed(["make", "lab"]),
        "build": _timed(["make", "build"]),
        "provision": _timed(["make", "--no-print-directory", ".lab/provisioned"]),
        "run": _timed([ansible_playbook, "playbooks/run.yml", "-e", f"scenario={scenario}"]),
    }
    if latest.resolve() == before:
        raise FileNotFoundError(f"{latest} is still {before.name}: the playbook made no run directory")
    rows = demo_rows(parts_s, state_durations_s(read_jsonl(latest / "events.jsonl")), warm=warm)
    publish(rows, target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dumbbell.bench", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("demo", help="boot and provision the lab, run a scenario in it")
    asked.add_argument("--scenario", type=Path, default=SCENARIO)
    asked.add_argument("--output", type=Path, default=Path("bench/demo.json"))
    args = parser.parse_args(arguments)
    if not Path("playbooks/run.yml").exists():
        print("There is no playbooks/run.yml here: start it in a checkout of Dumbbell.", file=sys.stderr)
        return 2
    try:
        demo(args.scenario, args.output)
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        print(f"{command} failed with status {error.returncode}; {args.output} is left.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
