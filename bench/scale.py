"""Time what is done with a run of ten thousand points, and what a cluster adds to a point: bench/scale.json.

The run is made up: each point has the files of a synthetic one, with levels and a number of its own. On the
cluster, a scheduler and a worker of this machine, a shell script stands for the world of a point: it copies
the files of a synthetic one.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cluster.test_points import Site
from dask_processes import processes
from distributed import Client
from synthetic import inventory, write_run

from dumbbell.cluster.points import Points
from dumbbell.execution.collect import collect
from dumbbell.plan import Plan, plan
from dumbbell.run import catalogue
from dumbbell.run.directory import RunDir
from dumbbell.run.record import read_json, write_json
from dumbbell.virtual.world import run as run_world
from tools.bench import Row, publish

TARGET = Path("bench/scale.json")
POINTS = 10_000
REPEATS = 5
AT_ONCE = 10  # points that are sent together
SCENARIO = """
name: scale
title: Two flows with {repetitions} repetitions of four queues
duration: 4s
order: listed
repetitions: {repetitions}
matrix: {{queue: [0.5bdp, 1bdp, 2bdp, 4bdp]}}
path:
  forward: {{rate: 20mbit, delay: 10ms, queue: {{kind: pfifo, limit: $queue}}}}
flows:
  first: {{kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]", congestion_control: cubic}}
  second: {{kind: iperf3_tcp, from: "senders[1]", to: "receivers[1]", congestion_control: cubic}}
expect:
  - {{metric: utilisation, min: 60%}}
"""
OPEN = "RunDir.open(run)"
STATES = "[execution.finished for execution in RunDir.open(run).executions]"
INDEX = "render_index(run.parent)"
SCAN = (
    "dumbbell.open(run).samples('snd_cwnd').group_by('level_queue').agg(pl.col('snd_cwnd').mean()).collect()"
)
TIMED = """
import sys, time
from pathlib import Path
import polars as pl
import dumbbell
from dumbbell.report.pages.index import render_index
from dumbbell.run.directory import RunDir
import dumbbell.results
run = Path(sys.argv[1])
began = time.monotonic()
{}
print(time.monotonic() - began)
"""


def made_up(folder: Path, number: int) -> tuple[Path, list[Row]]:
    """A run of so many points, and how long planning and making it took."""
    (scenario := folder / "scale.yml").write_text(SCENARIO.format(repetitions=number // 4))
    began = time.monotonic()
    planned = plan(scenario, inventory())
    at_plan = time.monotonic()
    run = RunDir.create(planned, scenario, folder / "results")
    at_made = time.monotonic()
    write_run(one := folder / "one", scenario)
    collect(one, None)
    for execution, of in zip(run.executions, planned.points, strict=True):
        _fill(execution.dir, one, of.levels, of.repetition)
    _summary(run, planned)
    rows = [
        Row(f"plan {number} points", at_plan - began, "s"),
        Row(f"make the directories of {number} points", at_made - at_plan, "s"),
    ]
    return run.dir, rows


def _fill(target: Path, one: Path, levels: dict[str, str], repetition: int) -> None:
    for name in ("tcp_info.parquet", "flows.parquet", "verdict.json", "events.jsonl"):
        shutil.copy(one / name, target / name)
    manifest = read_json(one / "manifest.json")
    write_json(target / "manifest.json", manifest | {"levels": levels, "repetition": repetition})


def _summary(run: RunDir, planned: Plan) -> None:
    """What :func:`dumbbell.validity.points.summarise` writes, which compares settings of all hosts too."""
    points = [
        {
            "run": execution.id,
            "directory": str(execution.dir.relative_to(run.dir)),
            "point": of.id,
            "baseline": None,
            "levels": of.levels,
            "repetition": of.repetition,
            "state": "passed",
        }
        for execution, of in zip(run.executions, planned.points, strict=True)
    ]
    write_json(run.dir / "verdict.json", {"state": "passed", "reasons": [], "points": points})
    catalogue.write(run.dir, [execution.dir for execution in run.executions])


def timed_s(what: str, run: Path, repeats: int = REPEATS) -> list[float]:
    """Seconds that a line of Python takes, each time in a new process."""
    command = [sys.executable, "-c", TIMED.format(what), str(run)]
    return [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
        for _ in range(repeats)
    ]


def overhead_s(folder: Path) -> list[float]:
    """Seconds of each of several points on a worker that runs one at a time, beyond the script's own."""
    results, found = folder / "of_a_point", []
    write_run(results)
    collect(results, None)
    copies = f"cp -r {results}/. links/1/"
    site = Site(folder / "site", f"{copies}; echo 1 >$world/beat; echo 0 >$world/status")
    own_s = statistics.median(_own_s(results, folder / f"copy{n}") for n in range(REPEATS))
    needs, archive = site.needs()
    with processes(folder / "cluster") as cluster:
        cluster.worker("worker")
        with Client(cluster.address, set_as_default=False) as client:
            points = Points(client, needs, archive, lambda line: None)
            list(points.map(run_world, site.worlds(1)))  # it makes the worker ready
            shutil.rmtree(site.run)
            for _ in range(REPEATS):
                began = time.monotonic()
                list(points.map(run_world, site.worlds(AT_ONCE)))
                found.append((time.monotonic() - began) / AT_ONCE - own_s)
                shutil.rmtree(site.run)
    return found


def _own_s(source: Path, target: Path) -> float:
    began = time.monotonic()
    subprocess.run(["cp", "-r", source, target], check=True)
    return time.monotonic() - began


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--target", type=Path, default=TARGET)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        run, rows = made_up(Path(folder), options.points)
        number = options.points
        rows += [
            Row.median(f"open a run of {number} points", timed_s(OPEN, run), "s", "<= 2"),
            Row.median("see which have a verdict", timed_s(STATES, run), "s"),
            Row.median("write the index", timed_s(INDEX, run), "s", "<= 10"),
            Row.median("mean cwnd of each queue, from all samples", timed_s(SCAN, run), "s"),
            Row.median("what a cluster adds to a point", overhead_s(Path(folder)), "s", "<= 2"),
        ]
        publish(rows, options.target)


if __name__ == "__main__":
    main()
