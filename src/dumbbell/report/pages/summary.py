"""The page of a run of several points: what came of each, and what repetitions agree on."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell import analysis
from dumbbell.plan import point_label
from dumbbell.report import html
from dumbbell.run.directory import read_json
from dumbbell.units import human


def render_summary(run_dir: Path) -> Path:
    """Write ``report.html`` of a run with several points, from verdict.json and flows.parquet."""
    verdict, plan = read_json(run_dir / "verdict.json"), read_json(run_dir / "plan.json")
    passed = sum(point["state"] == "passed" for point in verdict["points"])
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in verdict["reasons"])
    try:
        flows = pl.read_parquet(run_dir / "flows.parquet")
    except OSError:
        flows = pl.DataFrame()
    about = f"<p>{passed} of {len(verdict['points'])} points passed.</p><ul>{reasons}</ul>"
    body = (
        f"{html.assets()}<h1>{escape(plan['title'])}</h1>"
        f'<p class="meta"><span>scenario <b>{escape(plan["scenario"])}</b></span>'
        f'<span>run <span class="mono">{escape(run_dir.name)}</span></span></p>'
        f"{html.verdict_box(verdict['state'], about)}"
        f"{_unexplained(verdict.get('unexplained') or [])}"
        f"<h2>Goodput by point</h2>{_medians(flows, 'goodput_bps', 'bps')}"
        '<p class="note">Of each flow while it runs, after the warm-up.</p>'
        f"{_fetches(flows)}"
        f"<h2>Points in the order of the run</h2>{_points(verdict['points'], flows)}"
    )
    (path := run_dir / "report.html").write_text(html.page(plan["title"], body))
    return path


def _unexplained(found: list[dict[str, Any]]) -> str:
    """A row for each value of a setting of a host that no level explains; nothing where there is none."""
    if not found:
        return ""
    rows = (
        html.row(map(escape, (one["host"], one["setting"], value, ", ".join(points))))
        for one in found
        for value, points in one["values"].items()
    )
    return (
        f"<h2>Settings that differ, and nothing explains it</h2>"
        f"{html.table(('host', 'setting', 'value', 'points'), rows)}"
        '<p class="note">These points asked the same of the host, and found different values. Nobody asked '
        "for it, so it is not known what it does to the results.</p>"
    )


def _fetches(flows: pl.DataFrame) -> str:
    """Percentiles of the fetch times, where there are fetches."""
    if "completion_p50_ns" not in flows.columns:
        return ""
    own = flows.filter(pl.col("kind") == "http")
    return "".join(
        f"<h2>{title} of fetch times by point</h2>{_medians(own, column, 'ns')}"
        for title, column in (("Median", "completion_p50_ns"), ("95th percentile", "completion_p95_ns"))
    )


def _medians(flows: pl.DataFrame, column: str, unit: str) -> str:
    """Median and range of a column over the repetitions that are results: passed or failed."""
    if flows.is_empty():
        return '<p class="missing">No point has flows to compare.</p>'
    levels = [name for name in flows.columns if name.startswith("level_")]
    keys = ["baseline", *levels]
    valid = flows.filter(pl.col("verdict").is_in(analysis.VALID))
    if valid.is_empty():
        return '<p class="missing">No point has a valid result to compare.</p>'
    rows = (
        valid.group_by(*keys, "name", maintain_order=True)
        .agg(
            pl.col(column).median().alias("median"),
            pl.col(column).min().alias("least"),
            pl.col(column).max().alias("most"),
            pl.len().alias("n"),
        )
        .sort([*keys, "name"], nulls_last=True)
    )
    head = [
        *(name.removeprefix("level_") for name in levels),
        "flow",
        "median",
        "range",
        "repetitions",
    ]
    if flows["baseline"].drop_nulls().is_empty():
        shown = levels
    else:
        shown, head = keys, ["baseline", *head]
    return html.table(
        map(escape, head),
        (
            html.row(
                [
                    *(escape(row[key] or "-") for key in shown),
                    escape(row["name"]),
                    human(row["median"], unit),
                    f"{human(row['least'], unit)} to {human(row['most'], unit)}",
                    str(row["n"]),
                ]
            )
            for row in rows.iter_rows(named=True)
        ),
    )


def _points(points: list[dict[str, Any]], flows: pl.DataFrame) -> str:
    goodputs: dict[str, list[str]] = {}
    if not flows.is_empty():
        for row in flows.iter_rows(named=True):
            goodputs.setdefault(row["run"], []).append(f"{row['name']} {human(row['goodput_bps'], 'bps')}")
    rows = []
    for point in points:
        label = point_label(point["baseline"], point["levels"]) or point["point"]
        verdict = f'<a href="{escape(point["directory"])}/report.html">{html.word(point["state"])}</a>'
        goodput = escape(", ".join(goodputs.get(point["run"], [])) or "-")
        rows.append(html.row([escape(label), str(point["repetition"]), verdict, goodput]))
    return html.table(["point", "repetition", "verdict", "goodput"], rows)
