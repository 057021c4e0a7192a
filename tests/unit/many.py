"""A run of very many points, made of a single one: for what takes long with many."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
from synthetic import inventory

from dumbbell.plan import plan
from dumbbell.run.directory import RunDir
from dumbbell.validity.points import summarise

MANY = """
name: many
title: Two flows at a thousand points
duration: 4s
order: listed
repetitions: 2
matrix:
  rate: [{rates}]
  queue: [{queues}]
  delay: [5ms, 10ms, 20ms, 40ms, 80ms]
path:
  forward: {{rate: $rate, delay: $delay, queue: {{kind: pfifo, limit: $queue}}}}
flows:
  first: {{kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]", congestion_control: cubic}}
  second: {{kind: iperf3_tcp, from: "senders[1]", to: "receivers[1]", congestion_control: reno}}
""".format(
    rates=", ".join(f"{10 * number}mbit" for number in range(1, 11)),
    queues=", ".join(f"{0.5 * number:g}bdp" for number in range(1, 11)),
)


def write_many(run_dir: Path, one: Path) -> None:
    """Write the points of :data:`MANY`, with the tables of a point of the same flows, which are scaled.

    Goodputs grow with the rate, and differ a little between repetitions.
    """
    run_dir.mkdir(parents=True)
    (scenario := run_dir / "scenario.yml").write_text(MANY)
    whole = plan(scenario, inventory())
    (run_dir / "plan.json").write_bytes(whole.to_json())
    manifest = json.loads((one / "manifest.json").read_text())
    tables = {path: pl.read_parquet(path) for path in (one / "tcp_info.parquet", one / "flows.parquet")}
    for number, point in enumerate(whole.points, 1):
        (folder := run_dir / "points" / f"{number:03d}").mkdir(parents=True)
        own = {"run": f"{run_dir.name}_{folder.name}", "levels": point.levels, "repetition": point.repetition}
        (folder / "manifest.json").write_text(json.dumps(manifest | own))
        (folder / "plan.json").write_bytes(whole.model_copy(update={"points": [point]}).to_json())
        for path in one.glob("*.parquet"):
            if path not in tables:
                os.link(path, folder / path.name)
        os.link(one / "verdict.json", folder / "verdict.json")
        scale = int(point.levels["rate"].removesuffix("mbit")) / 20 * (1 + 0.002 * point.repetition)
        for path, table in tables.items():
            scaled = pl.col("^bytes_acked|goodput_bps$") * scale
            table.with_columns(scaled.cast(pl.Int64) if path.stem == "tcp_info" else scaled).write_parquet(
                folder / path.name
            )
    summarise(RunDir.open(run_dir))
