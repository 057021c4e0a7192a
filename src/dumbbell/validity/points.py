"""The result of a run of several points: one verdict, and one table of flows."""

from __future__ import annotations

from typing import Any

import polars as pl

from dumbbell.compare.observed import by_hosts, differences, unexplained
from dumbbell.run import catalogue
from dumbbell.run.content import Run
from dumbbell.run.directory import Execution, RunDir
from dumbbell.run.record import read_json, write_json
from dumbbell.validity.settings import seen

# From the worst to the best; a run has the worst verdict of its points.
ORDER = ("aborted", "invalid", "inconclusive", "failed", "passed")


def summarise(run: RunDir) -> dict[str, Any]:
    """Write verdict, flows and catalogue of a run with several points; return the verdict.

    The verdict is that of the worst point. Its reasons begin with differences between settings of the hosts
    that no level explains. A point without a verdict, because the run ended before it, is `aborted`.

    The table has a row for each flow of each measurement, with the point's levels (``level_NAME``), its
    repetition, and its verdict.
    """
    results = [(execution, verdict_of(execution)) for execution in run.executions]
    points = ((Run(e.dir, e.plan), f"point {number}") for number, e in enumerate(run.executions, 1))
    unlike = unexplained(differences([*seen(points)]))
    verdict = {
        "state": min((result["state"] for _, result in results), key=ORDER.index),
        "reasons": [f"unexplained: {told}" for told in by_hosts(unlike)]
        + [
            f"{execution.name}: {result['state']}: {'; '.join(result['reasons'])}"
            for execution, result in results
            if result["state"] != "passed"
        ],
        "unexplained": [one.json for one in unlike],
        "points": [
            {
                "run": execution.id,
                "directory": str(execution.dir.relative_to(run.dir)),
                "point": execution.point.id,
                "baseline": execution.point.baseline,
                "levels": execution.point.levels,
                "repetition": execution.point.repetition,
                "state": result["state"],
            }
            for execution, result in results
        ],
    }
    tables = [_flows(execution, result["state"]) for execution, result in results]
    if found := [table for table in tables if table is not None]:
        pl.concat(found, how="diagonal_relaxed").write_parquet(run.dir / "flows.parquet")
    write_json(run.dir / "verdict.json", verdict)
    catalogue.write(run.dir, [execution.dir for execution in run.executions])
    return verdict


def verdict_of(execution: Execution) -> dict[str, Any]:
    """The verdict of a point; `aborted` if the run did not reach it."""
    missing = {"state": "aborted", "reasons": ["not run: the run ended before"]}
    return read_json(execution.dir / "verdict.json") or missing


def _flows(execution: Execution, state: str) -> pl.DataFrame | None:
    try:
        flows = pl.read_parquet(execution.dir / "flows.parquet")
    except OSError:
        return None
    point = execution.point
    return flows.filter(pl.col("phase") == "measurement").with_columns(
        repetition=point.repetition,
        baseline=pl.lit(point.baseline, pl.String),
        verdict=pl.lit(state),
        **{f"level_{name}": pl.lit(level) for name, level in point.levels.items()},
    )
