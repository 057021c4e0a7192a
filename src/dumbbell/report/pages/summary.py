"""The page of a run of several points: the result of each, and medians over repetitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from dumbbell import analysis
from dumbbell.plan import Plan, point_label
from dumbbell.report import html
from dumbbell.report.plots import of_set
from dumbbell.run.record import read_json
from dumbbell.studies.points import Points
from dumbbell.studies.source import Missing
from dumbbell.units import human

MEDIANS = {  # each table of medians: its title, its column of the table of flows, and its unit
    "Goodput by point": ("goodput_bps", "bps"),
    "Median RTT by point": ("rtt_p50_ns", "ns"),
    "Segments sent again by point": ("retransmits", "share"),
    "Median of fetch times by point": ("completion_p50_ns", "ns"),
    "95th percentile of fetch times by point": ("completion_p95_ns", "ns"),
}


class Medians(NamedTuple):
    """A table of medians over repetitions."""

    head: list[str]
    rows: list[list[str]]


def render_summary(run_dir: Path) -> Path:
    """Write ``report.html`` of a run with several points, from verdict.json and flows.parquet."""
    verdict = read_json(run_dir / "verdict.json")
    plan = Plan.read(run_dir / "plan.json")
    try:
        flows = pl.read_parquet(run_dir / "flows.parquet")
    except OSError:
        flows = pl.DataFrame()
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
        medians={
            title: _medians(flows, column, unit)
            for title, (column, unit) in MEDIANS.items()
            if column == "goodput_bps" or (column in flows.columns and flows[column].count())
        },
        figures=_figures(run_dir),
        plotly=Markup(get_plotlyjs()),
        points=_points(verdict["points"], flows),
    )
    (path := run_dir / "report.html").write_text(text)
    return path


def _figures(run_dir: Path) -> list[of_set.Shown]:
    """The figures over all points; none if their numbers cannot be read, which their pages say."""
    html.save_figures_as(run_dir.name)
    try:
        return list(of_set.overview(Points.open(run_dir)))
    except Missing:
        return []


def _medians(flows: pl.DataFrame, column: str, unit: str) -> Medians | str:
    """Median and range of a column over the valid repetitions, or why there are none."""
    if flows.is_empty():
        return "No point has flows to compare."
    flows = flows.filter(pl.col(column).is_not_null())
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
