"""All metrics of a run as one table, for comparisons between runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell.metrics.flows import COUNTED
from dumbbell.metrics.measure import MEASURED_FROM, Tables
from dumbbell.metrics.registry import MEDIAN, METRICS, PERCENTILES, with_percentile
from dumbbell.plan import Expectation, PingAction, Point, windows
from dumbbell.run.content import Run, RunSet, dig
from dumbbell.run.directory import point_folders
from dumbbell.run.record import read_json
from dumbbell.units import human

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


def values(run_dir: Path, percentiles: Sequence[int] = (MEDIAN,), only: str | None = None) -> pl.DataFrame:
    """Every metric of every point of a run directory; metrics that have ``percentiles`` once for each.

    With ``only``, the metric of that name and no other.

    ``[run, id, point, repetition, verdict, metric, subject, unit, value]``.

    ``id`` is the id of the point in the plan, ``point`` its levels in words, or ``-``. Metrics are those of
    :data:`dumbbell.metrics.registry.METRICS` that are compared, over their default windows, after the
    warm-up: of each flow and ping while it runs, of all flows of one direction while all of them run.
    Metrics that could not be measured are absent. OSError or ValueError if the directory has no run with
    results.
    """
    rows = [row for run in RunSet.open(run_dir) for row in _of_point(run, percentiles, only)]
    return pl.DataFrame(rows, schema=VALUES, orient="row")


def measurable(point: Point) -> dict[str, list[str]]:
    """The metrics that a point can have, by their names in :func:`values`, and the subjects of each."""
    found: dict[str, list[str]] = {}
    flows = {flow.name: flow for flow in point.phase("measurement").flows}
    for bound in _bounds(point, PERCENTILES):
        name = with_percentile(bound.metric, int(bound.percentile or MEDIAN))
        subjects = bound.flows
        if METRICS[bound.metric].shared:
            subjects = [windows.in_words([flows[flow] for flow in subjects], [*flows.values()])]
        found.setdefault(name, []).extend(subjects)
    return found


def digests(run_dir: Path) -> dict[tuple[str, int], dict[str, str]]:
    """Digests of every table, by point and repetition, of a run in virtual time; empty for other runs."""
    found = {}
    for run in RunSet.open(run_dir):
        if told := run.manifest.get("digests"):
            found[run.point.label or "-", int(run.manifest["repetition"])] = told
    return found


def conditions(run_dir: Path) -> dict[str, str]:
    """What the results depend on, by name: scenario, kernels, tools and builds of modules of the hosts.

    Of a run with several points, those of the first. Empty if nothing is known.
    """
    manifests = [folder / "manifest.json" for folder in (*point_folders(run_dir), run_dir)]
    path = next((path for path in manifests if path.exists()), run_dir / "manifest.json")
    manifest = read_json(path) or {}
    found = {name: manifest.get(name) for name in ("scenario", "seed", "inventory_fingerprint")}
    (point, *_) = dig(read_json(path.parent / "plan.json"), "points") or [None]
    warm_up_ns = dig(point, "warm_up_ns")  # old plans have none: their metrics cover the whole time
    found["warm-up"] = None if warm_up_ns is None else human(warm_up_ns, "ns")
    found |= {f"controller {name}": version for name, version in (manifest.get("versions") or {}).items()}
    for host, state in (manifest.get("hosts") or {}).items():
        found[f"{host} kernel"] = dig(state, "kernel")
        for told in ("versions", "hardware"):
            found |= {f"{host} {name}": what for name, what in (dig(state, told) or {}).items()}
        modules = (dig(state, "modules", "loaded") or {}).items()
        found |= {f"{host} module {name}": dig(loaded, "build_id") for name, loaded in modules}
    return {name: str(value) for name, value in found.items() if value is not None}


def tables_of(run: Run) -> Tables | None:
    """The tables of a point, for its metrics; None if it ended before it measured.

    OSError or ValueError if it has not ended, or if tables were lost.
    """
    if not run.verdict:
        raise ValueError(f"{run.dir} has no readable verdict.json: its run has not ended")
    paths = {name: run.dir / f"{name}.parquet" for name in COUNTED}
    tables = {name: _read(name, path) for name, path in paths.items() if path.exists()}
    if "tcp_info" not in tables:
        return None
    if lost := COUNTED.keys() - tables:
        raise ValueError(f"{run.dir} has no {', '.join(sorted(lost))}.parquet")
    return Tables(run, tables)


def lives(point: Point) -> dict[str, windows.Window]:
    """The lives of the flows and pings of a point's measurement, by their names."""
    phase = point.phase("measurement")
    actions = (action for host in phase.hosts.values() for action in host.actions)
    pings = {action.name: action.life_ns for action in actions if isinstance(action, PingAction)}
    return pings | {flow.name: flow.life_ns for flow in phase.flows}


def _of_point(run: Run, percentiles: Sequence[int], only: str | None) -> Iterator[tuple[Any, ...]]:
    if (measured := tables_of(run)) is None:
        return
    point = run.point
    for bound in _bounds(point, percentiles):
        name = with_percentile(bound.metric, int(bound.percentile or MEDIAN))
        if only is not None and name != only:
            continue
        for found in measured.measure(bound):
            if found.value is not None:
                numbers = (name, found.subject, METRICS[bound.metric].unit, found.value)
                yield (run.id, point.id, point.label or "-", point.repetition, run.verdict["state"], *numbers)


def _read(name: str, path: Path) -> pl.DataFrame:
    table = pl.scan_parquet(path)
    there = table.collect_schema().names()
    return table.select([c for c in there if name != "tcp_info" or c in MEASURED_FROM]).collect()


def _bounds(point: Point, percentiles: Sequence[int]) -> Iterator[Expectation]:
    """Each metric over its default window: of all flows of a direction together, or of each flow alone."""
    phase, warm_up_ns = point.phase("measurement"), point.warm_up_ns
    living = lives(point)
    pings = living.keys() - {flow.name for flow in phase.flows}
    sampled = {name for host in phase.hosts.values() for name in host.sample.tcp}
    commands = {flow.name for flow in phase.flows if flow.kind == "command"} & sampled
    for metric in (metric for metric in METRICS.values() if metric.compared):
        names = metric.known(phase.flows, pings)
        if metric.shared:
            groups = [
                [flow.name for flow in flows]
                for flows in windows.ways(f for f in phase.flows if f.name in names).values()
                if len(flows) >= metric.least_flows
            ]
        else:
            names |= commands if metric.commands else set()
            groups = [[name] for name in living if name in names]
        for group in groups:
            if window := windows.default_window([living[name] for name in group], warm_up_ns):
                until_done = metric.until_done or None
                bounds: dict[str, None] = {"min": None, "max": None}
                asked = percentiles if metric.percentile is not None else (None,)
                for percentile in asked:
                    yield Expectation(
                        metric=metric.name,
                        flows=group,
                        window_ns=window,
                        until_done=until_done,
                        percentile=percentile,
                        **bounds,
                    )
