"""Time what a user waits for: ``python -m tools.bench demo`` or ``overhead``, in a checkout.

``demo`` times the steps of ``make demo``: boot the lab, build the files for its hosts, provision them, run a
scenario; the run is also divided by its states. ``overhead`` measures the time of points beyond that of
their flows, in the lab and in virtual time, and the number of Ansible tasks of a host. The results are in
``bench/demo.json`` and ``bench/overhead.json``.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np

from dumbbell.run.directory import point_folders
from dumbbell.run.record import Event, read_jsonl

SCENARIO = Path("scenarios/two_flow_fairness.yml")
WARM_DEMO = "<= 90"
POINTS = Path("bench/four_points.yml")  # same path, 30 s each
ONE_POINT = Path("bench/one_point.yml")
POINT_S = 30
TASK = re.compile(r"^(?:ok|changed|skipping|fatal|failed): \[(?P<host>[\w.-]+)", re.MULTILINE)
INCLUDED = re.compile(r"^included: .* for (?P<hosts>.+)$", re.MULTILINE)


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
    """Seconds that a run spent in each state, in order of time, from its ``events.jsonl``.

    States of a phase have its name (``armed calibration``). The last state, the verdict, has no duration; a
    state that was entered twice has the sum.
    """
    states = sorted((e for e in events if e.get("event") == "state"), key=lambda e: e["unix_ns"])
    durations: dict[str, float] = {}
    for now, then in pairwise(states):
        name = " ".join((now["state"], now.get("reason", ""))).strip()
        durations[name] = durations.get(name, 0.0) + (then["unix_ns"] - now["unix_ns"]) / 1e9
    return durations


def demo_rows(parts_s: dict[str, float], states_s: dict[str, float], *, warm: bool) -> list[Row]:
    """Rows of the demo: its steps, the states of its run, and their total, which has a target if warm."""
    kind = "warm" if warm else "cold"
    rows = [Row(f"{kind} demo: {part}", value, "s") for part, value in parts_s.items()]
    rows += [Row(f"{kind} demo: run: {state}", value, "s") for state, value in states_s.items()]
    total = Row(f"{kind} demo: total", sum(parts_s.values()), "s", target=WARM_DEMO if warm else None)
    return [*rows, total]


def to_json(rows: Sequence[Row]) -> str:
    """Content of a ``bench/*.json``: a list of objects, with values rounded to hundredths."""
    return json.dumps([asdict(row) | {"value": round(row.value, 2)} for row in rows], indent=1) + "\n"


def to_table(rows: Sequence[Row]) -> str:
    """The rows as text, one a line."""
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


def task_slots(log: str, host: str) -> int:
    """The number of tasks of a host, including skipped ones, from ansible-playbook's output."""
    included = [match["hosts"].partition(" => ")[0] for match in INCLUDED.finditer(log)]
    own = [match["host"] for match in TASK.finditer(log)].count(host)
    return own + len([hosts for hosts in included if host in hosts.split(", ")])


def point_logs(log: str) -> list[str]:
    """The output for each point, in order."""
    return re.split(r"(?m)^TASK \[dumbbell\.testbed\.run : Apply the state of the host\].*$", log)[1:]


def _timed(command: Sequence[str | Path]) -> float:
    """Seconds that a command takes; CalledProcessError if it fails, because its time is then meaningless."""
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


def _run(inventory: str, playbook: str, scenario: Path, *arguments: str) -> tuple[float, str, Path]:
    """Seconds that a run takes, its output, and its directory."""
    command = [
        *(str(Path(sys.executable).with_name("ansible-playbook")), "--inventory", inventory),
        *(playbook, "-e", f"scenario={scenario}", *arguments),
    ]
    print("$", *command, flush=True)
    began = time.monotonic()
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    took_s = time.monotonic() - began
    if done.returncode:
        print(done.stdout[-5000:], file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, command)
    return took_s, done.stdout, Path("results/latest").resolve()


def point_times_s(run_dir: Path) -> list[float]:
    """Seconds of each point, from the preparation of its hosts to that of the next point."""
    begun, ended = [], []
    for folder in point_folders(run_dir) or [run_dir]:
        at = {e["state"]: e["unix_ns"] for e in read_jsonl(folder / "events.jsonl") if "state" in e}
        begun.append(at["preparing"])
        ended.append(max(at.values()))
    return [(end - begin) / 1e9 for begin, end in zip(begun, [*begun[1:], ended[-1]], strict=True)]


def world_times(run_dir: Path) -> list[tuple[float, float, float]]:
    """Real, virtual and CPU time of a world, in seconds, as it told them while it ran."""
    with (run_dir / "world" / "time.csv").open() as file:
        rows = csv.DictReader(file)
        return [(float(row["real_s"]), float(row["virtual_s"]), float(row["cpu_s"])) for row in rows]


def flow_s(run_dir: Path) -> float:
    """Seconds of real time that a world took for the 30 s of its point."""
    (began_s,) = {
        event["mono_ns"] / 1e9
        for event in read_jsonl(run_dir / "events.jsonl")
        if event.get("phase") == "measurement" and event["event"] == "flow_first_data"
    }
    real_s, virtual_s, _ = zip(*world_times(run_dir), strict=True)
    began, ended = np.interp([began_s, began_s + POINT_S], virtual_s, real_s)
    return float(ended - began)


def overhead(target: Path) -> None:
    """Measure the overhead of points in the lab and in virtual time, and provisioning without changes."""
    rows = []
    playbook = Path(sys.executable).with_name("ansible-playbook")
    provision_s = [_timed([playbook, "playbooks/provision.yml"]) for _ in range(3)]
    rows.append(Row.median("lab: provisioning that changes nothing", provision_s, "s", "<= 15"))
    one_s = [_run("inventory/lab", "playbooks/run.yml", ONE_POINT)[0] - POINT_S for _ in range(3)]
    rows.append(Row.median("lab: run of one point, all but its 30 s", one_s, "s", "<= 40"))
    _, log, run_dir = _run("inventory/lab", "playbooks/run.yml", POINTS)
    further_s = [took - POINT_S for took in point_times_s(run_dir)[1:-1]]
    rows.append(
        Row.median("lab: each further point on the same path, all but its 30 s", further_s, "s", "<= 15")
    )
    for host in ("sender1", "sender2", "router"):
        slots = [task_slots(part, host) for part in point_logs(log)[1:-1]]
        rows.append(Row.median(f"lab: task slots of {host} and a further point", slots, "tasks", "<= 8"))
    _run("inventory/vtime", "playbooks/virtual.yml", ONE_POINT)  # provisions a world if there is none
    for world, goal in (("light", "<= 15"), ("full", "<= 40")):
        asked = ("-e", f"world={world}")
        virtual_s = []
        for _ in range(3):
            took_s, _, run_dir = _run("inventory/vtime", "playbooks/virtual.yml", ONE_POINT, *asked)
            virtual_s.append(took_s - flow_s(run_dir))
        metric = f"virtual time: run of one point in a {world} world, all but its {POINT_S} s"
        rows.append(Row.median(metric, virtual_s, "s", goal))
    publish(rows, target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("demo", help="boot and provision the lab, run a scenario in it")
    asked.add_argument("--scenario", type=Path, default=SCENARIO)
    asked.add_argument("--output", type=Path, default=Path("bench/demo.json"))
    asked = commands.add_parser("overhead", help="what points cost beside their flows; a quarter of an hour")
    asked.add_argument("--output", type=Path, default=Path("bench/overhead.json"))
    args = parser.parse_args(arguments)
    if not Path("playbooks/run.yml").exists():
        print("There is no playbooks/run.yml here: start it in a checkout of Dumbbell.", file=sys.stderr)
        return 2
    try:
        if args.command == "overhead":
            overhead(args.output)
        else:
            demo(args.scenario, args.output)
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        print(f"{command} failed with status {error.returncode}; {args.output} is left.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
