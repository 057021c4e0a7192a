"""What came of a run, as one table of numbers: for comparing runs with one another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell.plan import Expectation, Point
from dumbbell.rundir import point_folders, read_json
from dumbbell.store.metrics import MEASURED_FROM, UNITS, Metrics
from dumbbell.store.run import COUNTED, Run, dig, point_dirs

VALUES = {
    "run": pl.String,
    "id": pl.String,
    "point": pl.String,
    "repetition": pl.Int64,
    "verdict": pl.String,
    "metric": pl.String,
    "subject": pl.String,
    "unit": pl.String,
    "value": pl.Float64,
}


def values(run_dir: Path) -> pl.DataFrame:
    """Every metric of every point of a run directory.

    ``[run, id, point, repetition, verdict, metric, subject, unit, value]``.

    ``id`` is that of the point's plan, ``point`` what varies, in words, or ``-``. Metrics are those of
    :data:`dumbbell.store.metrics.UNITS`, by flow from its start to its end, and over all flows while all run;
    those that could not be measured are absent. OSError or ValueError if there is no run with results.
    """
    rows = [row for point_dir in point_dirs(run_dir) for row in _of_point(point_dir)]
    return pl.DataFrame(rows, schema=VALUES, orient="row")


def digests(run_dir: Path) -> dict[tuple[str, int], dict[str, str]]:
    """Of each point and repetition of a run in virtual time a digest of every table; empty of other runs."""
    found = {}
    for point_dir in point_dirs(run_dir):
        manifest = read_json(point_dir / "manifest.json") or {}
        if told := manifest.get("digests"):
            found[Run.open(point_dir).point.label or "-", int(manifest["repetition"])] = told
    return found


def conditions(run_dir: Path) -> dict[str, str]:
    """What the results were had with, by name: scenario, kernels, tools and builds of modules of the hosts.

    Of a run with several points that of its first. Empty if nothing is known of it.
    """
    manifests = [folder / "manifest.json" for folder in (*point_folders(run_dir), run_dir)]
    manifest = next((read_json(path) for path in manifests if path.exists()), None) or {}
    found = {name: manifest.get(name) for name in ("scenario", "seed", "inventory_fingerprint")}
    found |= {f"controller {name}": version for name, version in (manifest.get("versions") or {}).items()}
    for host, state in (manifest.get("hosts") or {}).items():
        found[f"{host} kernel"] = dig(state, "kernel")
        for told in ("versions", "hardware"):
            found |= {f"{host} {name}": what for name, what in (dig(state, told) or {}).items()}
        modules = (dig(state, "modules", "loaded") or {}).items()
        found |= {f"{host} module {name}": dig(loaded, "build_id") for name, loaded in modules}
    return {name: str(value) for name, value in found.items() if value is not None}


def _of_point(run_dir: Path) -> Iterator[tuple[Any, ...]]:
    run, verdict = Run.open(run_dir), read_json(run_dir / "verdict.json")
    if verdict is None:
        raise ValueError(f"{run_dir} has no readable verdict.json: its run has not ended")
    paths = {name: run_dir / f"{name}.parquet" for name in COUNTED}
    tables = {name: _read(name, path) for name, path in paths.items() if path.exists()}
    if "tcp_info" not in tables:
        return  # it ended before it measured
    if lost := COUNTED.keys() - tables:
        raise ValueError(f"{run_dir} has no {', '.join(sorted(lost))}.parquet")
    point = run.point
    metrics = Metrics(run, tables)
    for bound in _bounds(point):
        for found in metrics.measure(bound):
            if found.value is not None:
                numbers = (bound.metric, found.subject, UNITS[bound.metric], found.value)
                yield (run.id, point.id, point.label or "-", point.repetition, verdict["state"], *numbers)


def _read(name: str, path: Path) -> pl.DataFrame:
    table = pl.scan_parquet(path)
    there = table.collect_schema().names()
    return table.select([c for c in there if name != "tcp_info" or c in MEASURED_FROM]).collect()


def _bounds(point: Point) -> Iterator[Expectation]:
    """Each metric over the time in which it means something."""
    flows = point.phase("measurement").flows
    together = (max(flow.start_ns for flow in flows), min(flow.end_ns for flow in flows))
    nothing = {"min": None, "max": None}
    for metric in UNITS:
        if metric in ("utilisation", "jain_index"):
            if len(flows) > (metric == "jain_index") and together[0] < together[1]:
                names = [flow.name for flow in flows]
                yield Expectation(metric=metric, flows=names, window_ns=together, **nothing)
            continue
        for flow in flows:
            if metric != "completion_time" or flow.kind == "http":
                span = (flow.start_ns, flow.end_ns)
                yield Expectation(metric=metric, flows=[flow.name], window_ns=span, **nothing)
