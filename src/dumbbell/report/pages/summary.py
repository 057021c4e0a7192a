"""The page of a run of several points: the result of each, and medians over repetitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Plan, point_label
from dumbbell.report import html
from dumbbell.run.record import read_json
from dumbbell.units import human

FETCH_TIMES = {"Median": "completion_p50_ns", "95th percentile": "completion_p95_ns"}


class Medians(NamedTuple):
    """A table of medians over repetitions."""

    head: list[str]
    rows: list[list[str]]


def render_summary(run_dir: Path) -> Path:
    """Write ``report.html`` of a run with several points, from verdict.json and flows.parquet."""
    verdict = read_json(run_dir / "verdict.json")
    plan = Plan.model_validate_json((run_dir / "plan.json").read_bytes())
    try:
        flows = pl.read_parquet(run_dir / "flows.parquet")
    except OSError:
        flows = pl.DataFrame()
    has_fetches = "completion_p50_ns" in flows.columns
    text = html.page(
        "summary.html",
        title=plan.title,
        scenario=plan.scenario,
        run=run_dir.name,
        state=verdict["state"],
        reasons=verdict["reasons"],
        warnings=plan.told_warnings,
        passed=sum(point["state"] == "passed" for point in verdict["points"]),
        unexplained=[
            (one["host"], one["setting"], value, ", ".join(points))
            for one in verdict.get("unexplained") or []
            for value, points in one["values"].items()
        ],
        goodput=_medians(flows, "goodput_bps", "bps"),
        fetches={
            title: _medians(flows.filter(pl.col("kind") == "http"), column, "ns")
            for title, column in FETCH_TIMES.items()
            if has_fetches
        },
        points=_points(verdict["points"], flows),
    )
    (path := run_dir / "report.html").write_text(text)
    return path


def _medians(flows: pl.DataFrame, column: str, unit: str) -> Medians | str:
    """Median and range of a column over the valid repetitions, or why there are none."""
    if flows.is_empty():
        return "No point has flows to compare."
    levels = [name for name in flows.columns if name.startswith("level_")]
    keys = ["baseline", *levels]
    rows = analysis.medians(flows.filter(pl.col("verdict").is_in(analysis.VALID)), [*keys, "name"], column)
    if rows.is_empty():
        return "No point has a valid result to compare."
    head = [*(name.removeprefix("level_") for name in levels), "flow", "median", "range", "repetitions"]
    if flows["baseline"].drop_nulls().is_empty():
        shown = levels
    else:
        shown, head = keys, ["baseline", *head]
    return Medians(
        head,
        [
            [
                *(row[key] or "-" for key in shown),
                row["name"],
                human(row["median"], unit),
                f"{human(row['least'], unit)} to {human(row['most'], unit)}",
                str(row["n"]),
            ]
            for row in rows.iter_rows(named=True)
        ],
    )


def _points(points: list[dict[str, Any]], flows: pl.DataFrame) -> list[dict[str, Any]]:
    """Points of a verdict with their names, and their flows' goodputs."""
    goodputs: dict[str, list[str]] = {}
    for row in flows.iter_rows(named=True):
        goodputs.setdefault(row["run"], []).append(f"{row['name']} {human(row['goodput_bps'], 'bps')}")
    return [
        point
        | {
            "label": point_label(point["baseline"], point["levels"]) or point["point"],
            "goodput": ", ".join(goodputs.get(point["run"], [])) or "-",
        }
        for point in points
    ]
