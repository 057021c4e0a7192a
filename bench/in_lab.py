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
from bench.soak import start_errors_ms
from dumbbell.ingest.influx import Influx
from dumbbell.metrics.values import values
from tools.bench import Row, publish

TARGET = Path("bench/in_lab.json")
SCENARIO = Path("bench/in_lab.yml")
SAMPLED, HARDLY = "interval=100ms", "interval=1min"


def flows() -> Iterator[Row]:
    """What two flows get that are sampled every 100 ms, against flows that are not, and when they start."""
    subprocess.run(["ansible-playbook", "playbooks/run.yml", "-e", f"scenario={SCENARIO}"], check=True)
    run_dir = Path("results/latest").resolve()
    used = values(run_dir).filter(metric="utilisation").sort("repetition")
    shares = {point: used.filter(point=point)["value"].to_list() for point in (SAMPLED, HARDLY)}
    ratios = [ours / none for ours, none in zip(shares[SAMPLED], shares[HARDLY], strict=True)]
    yield Row.median("goodput of 100 Mbit/s, hardly sampled", [share * 100 for share in shares[HARDLY]], "%")
    yield Row.median("goodput with all collectors every 100 ms / hardly sampled", ratios, "x", ">= 0.98")
    errors = pl.Series(list(start_errors_ms(run_dir)), dtype=pl.Float64)
    for percent, target in ((50, None), (99, "<= 10")):
        error = errors.quantile(percent / 100, interpolation="higher")
        yield Row(f"start error, {percent}th percentile", error or 0.0, "ms", len(errors), target=target)


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
