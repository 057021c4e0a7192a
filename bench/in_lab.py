"""Measure in the lab what collectors take from a flow, and how fast rows are stored: bench/in_lab.json."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
from lab import Lab

from bench.collect import backfilled, tcp_info_rows
from bench.soak import LATEST, start_errors
from dumbbell.ingest.influx import Influx
from dumbbell.run.directory import point_folders
from dumbbell.run.record import read_json
from tools.bench import Row, publish

TARGET = Path("bench/in_lab.json")
SCENARIO = Path("bench/in_lab.yml")
SAMPLED, HARDLY = "100ms", "1min"


def received_mbps(run_dir: Path) -> dict[str, list[float]]:
    """What both receivers of each point got a second, by how often they are sampled, in order of repetitions.

    By the receivers' own counts: tcp_info was not sampled in half of the points, which are invalid for this.
    ValueError if one of the others did not pass.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for folder in point_folders(run_dir):
        (point,) = read_json(folder / "plan.json")["points"]
        interval, state = point["levels"]["interval"], read_json(folder / "verdict.json")["state"]
        if interval == SAMPLED and state != "passed":
            raise ValueError(f"{folder} is {state}")
        duration_ns = point["phases"][-1]["duration_ns"]
        rows = pl.read_parquet(folder / "tcp_intervals.parquet")
        rows = rows.filter(pl.col("t_ns") < duration_ns, side="receiver", phase="measurement")
        mbps = int(rows["bytes"].sum()) * 8e3 / duration_ns
        found.setdefault(interval, []).append((point["repetition"], mbps))
    return {interval: [mbps for _, mbps in sorted(of)] for interval, of in found.items()}


def flows() -> Iterator[Row]:
    """What two flows get that are sampled every 100 ms, against flows that are not, and when they start."""
    before = LATEST.resolve()
    subprocess.run(["ansible-playbook", "playbooks/run.yml", "-e", f"scenario={SCENARIO}"], check=False)
    if (run_dir := LATEST.resolve()) == before:
        raise FileNotFoundError(f"{LATEST} is still {before.name}: the playbook made no run directory")
    got = received_mbps(run_dir)
    ratios = [ours / none for ours, none in zip(got[SAMPLED], got[HARDLY], strict=True)]
    yield Row.median("goodput of both flows, hardly sampled", got[HARDLY], "Mbit/s")
    yield Row.median("goodput with all collectors every 100 ms / hardly sampled", ratios, "x", ">= 0.98")
    yield from start_errors(run_dir)


def backfill(lab: Lab) -> Iterator[Row]:
    """From spools into the archive's InfluxDB, by the store's own code."""
    rows = tcp_info_rows("3s")
    with lab.influx() as archive, Influx(replace(archive.target, database="bench")) as influx:
        influx.query("CREATE DATABASE bench")
        try:
            yield from backfilled(influx, rows, "backfill into the archive", ">= 50000")
        finally:
            influx.query("DROP DATABASE bench")


def main() -> int:
    """Entry point; returns the exit status."""
    lab = Lab.of_inventory()
    rows = [*flows(), *backfill(lab)]
    rows.append(Row("load average at the end", os.getloadavg()[0], "processes"))
    publish(rows, TARGET)
    return 0


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main())
