"""Watch the memory of a run's controller and agents in the lab, and when its flows start: bench/soak.json."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from lab import Lab

from bench.memory import tree_mb
from dumbbell.run.record import Event, read_jsonl
from playbooks import start_playbook
from tools.bench import Row, publish

TARGET = Path("bench/soak.json")
DEFAULT = [
    *("playbooks/run.yml", "-e", "scenario=scenarios/congestion_controls_and_queues.yml"),
    *("-e", "profile=starts"),
]
LATEST = Path("results/latest")
BEFORE_IT_IS_JUDGED = ("planned", "preparing", "armed", "running")
ALL_FLOWS_RUN_S = 5
CONTROLLER_S, AGENTS_S = 3, 15
SETTLED = 0.1  # share of the time after which nothing should grow any more


def last_state(run_dir: Path) -> Event:
    """The last state that the run, or one of its points, has entered."""
    events = [
        e for path in run_dir.rglob("events.jsonl") if "raw" not in path.parts for e in read_jsonl(path)
    ]
    return max((e for e in events if e["event"] == "state"), key=lambda e: e["unix_ns"])


def agents_mb(lab: Lab) -> Iterator[float]:
    """Resident memory of each agent that works."""
    for host in lab.addresses:
        said = lab.ssh(host, "ps -C dumbbell-agent -o rss= || true")
        yield from (int(kb) / 1024 for kb in said.split())


def start_errors_ms(run_dir: Path) -> Iterator[float]:
    """How far from its planned time each flow of a measurement began, over all points of the run."""
    for manifest in run_dir.rglob("manifest.json"):
        for fact in json.loads(manifest.read_text())["facts"]:
            if fact["name"] == "start" and fact["measured"] is not None:
                yield abs(fact["measured"]) / 1e6


def start_errors(run_dir: Path) -> Iterator[Row]:
    """Percentiles of all flows of a run; none where no flow has begun."""
    errors = pl.Series(list(start_errors_ms(run_dir)), dtype=pl.Float64)
    for percent, target in ((50, None), (99, "<= 10")):
        error = errors.quantile(percent / 100, interpolation="higher")
        if error is not None:
            yield Row(f"start error, {percent}th percentile", error, "ms", len(errors), target=target)


def soak(lab: Lab, arguments: list[str]) -> Iterator[Row]:
    """The playbook to its end; the run's verdict does not matter here."""
    controller: list[tuple[float, float]] = []
    collecting: list[tuple[float, float]] = []
    agents: list[tuple[float, float]] = []
    before, began = LATEST.resolve(), time.monotonic()
    looked_at_agents = 0.0
    with tempfile.TemporaryFile("w+") as said, start_playbook(*arguments, said=said) as playbook:
        try:
            while playbook.poll() is None:
                at = time.monotonic() - began
                run_dir = LATEST.resolve()
                if run_dir != before:
                    now = last_state(run_dir)
                    judged = now["state"] not in BEFORE_IT_IS_JUDGED
                    (collecting if judged else controller).append((at, tree_mb(playbook.pid)))
                    # A look takes a host some tenths of a second, by which a flow would start late.
                    measured_s = time.time() - now["unix_ns"] / 1e9 if now["reason"] == "measurement" else 0
                    if measured_s >= ALL_FLOWS_RUN_S and at >= looked_at_agents + AGENTS_S:
                        agents += [(at, mb) for mb in agents_mb(lab)]
                        looked_at_agents = at
                time.sleep(CONTROLLER_S)
        finally:
            if playbook.poll() is None:
                os.killpg(playbook.pid, signal.SIGINT)
        said.seek(0)
        print(said.read()[-2000:])
    took_s = time.monotonic() - began
    yield Row(arguments[0], took_s / 60, "min")
    for who, samples, target in (
        ("controller while it prepares and measures", controller, "<= 300"),
        ("controller while it collects and makes pages", collecting, None),
        ("agents, each", agents, "<= 50"),
    ):
        peak = max(mb for _, mb in samples)
        early = max(mb for at, mb in samples if at <= max(SETTLED * took_s, samples[0][0]))
        yield Row(f"memory of the {who}: peak", peak, "MB", len(samples), target=target)
        yield Row(f"memory of the {who}: growth after a tenth of the time", peak - early, "MB")
    yield from start_errors(LATEST.resolve())
    yield Row("load average at the end", os.getloadavg()[0], "processes")


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("arguments", nargs="*", default=DEFAULT, help="of ansible-playbook, after a --")
    args = parser.parse_args()
    publish(list(soak(Lab.of_inventory(), args.arguments)), TARGET)
    return 0


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main())
