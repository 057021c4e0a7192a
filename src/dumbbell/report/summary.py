"""The page of a run of several points: what came of each, and what repetitions agree on."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell.store.run import read_json
from dumbbell.units import human

_MARKS = {"passed": "✓", "failed": "✗"}


def render_summary(run_dir: Path) -> Path:
    """Write ``report.html`` of a run with several points, from verdict.json and flows.parquet."""
    verdict, plan = read_json(run_dir / "verdict.json"), read_json(run_dir / "plan.json")
    style = files(__package__).joinpath("style.css").read_text()
    state = verdict["state"]
    passed = sum(point["state"] == "passed" for point in verdict["points"])
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in verdict["reasons"])
    try:
        flows = pl.read_parquet(run_dir / "flows.parquet")
    except OSError:
        flows = pl.DataFrame()
    body = (
        f"<h1>{escape(plan['title'])}</h1>"
        f'<p class="meta"><span>scenario <b>{escape(plan["scenario"])}</b></span>'
        f'<span>run <span class="mono">{escape(run_dir.name)}</span></span></p>'
        f'<div class="verdict {state}"><div class="word">{_MARKS.get(state, "⚠")} {state.upper()}</div>'
        f"<div><p>{passed} of {len(verdict['points'])} points passed.</p><ul>{reasons}</ul></div></div>"
        f"<h2>Goodput by point</h2>{_medians(flows)}"
        f"<h2>Points in the order of the run</h2>{_points(verdict['points'], flows)}"
    )
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(plan["title"])}</title>'
        f"<style>{style}</style></head><body><main>{body}</main></body></html>\n"
    )
    (path := run_dir / "report.html").write_text(page)
    return path


def _medians(flows: pl.DataFrame) -> str:
    """Median and range over the repetitions that are results: passed or failed."""
    if flows.is_empty():
        return '<p class="missing">No point has flows to compare.</p>'
    levels = [name for name in flows.columns if name.startswith("level_")]
    keys = ["baseline", *levels]
    valid = flows.filter(pl.col("verdict").is_in(["passed", "failed"]))
    if valid.is_empty():
        return '<p class="missing">No point has a valid result to compare.</p>'
    rows = (
        valid.group_by(*keys, "name", maintain_order=True)
        .agg(
            pl.col("goodput_bps").median().alias("median"),
            pl.col("goodput_bps").min().alias("least"),
            pl.col("goodput_bps").max().alias("most"),
            pl.len().alias("n"),
        )
        .sort([*keys, "name"], nulls_last=True)
    )
    head = [
        *(name.removeprefix("level_") for name in levels),
        "flow",
        "median goodput",
        "range",
        "repetitions",
    ]
    if flows["baseline"].drop_nulls().is_empty():
        shown = levels
    else:
        shown, head = keys, ["baseline", *head]
    return _table(
        head,
        (
            [
                *(row[key] or "-" for key in shown),
                row["name"],
                human(row["median"], "bps"),
                f"{human(row['least'], 'bps')} to {human(row['most'], 'bps')}",
                row["n"],
            ]
            for row in rows.iter_rows(named=True)
        ),
    )


def _points(points: list[dict[str, Any]], flows: pl.DataFrame) -> str:
    goodputs: dict[str, list[str]] = {}
    if not flows.is_empty():
        for row in flows.iter_rows(named=True):
            goodputs.setdefault(row["run"], []).append(f"{row['name']} {human(row['goodput_bps'], 'bps')}")
    return _table(
        ["point", "repetition", "verdict", "goodput"],
        (
            [
                " ".join(
                    [point["baseline"] or "", *(f"{name}={level}" for name, level in point["levels"].items())]
                ).strip()
                or point["point"],
                point["repetition"],
                _Link(point["state"], f"{point['directory']}/report.html"),
                ", ".join(goodputs.get(point["run"], [])) or "-",
            ]
            for point in points
        ),
    )


class _Link(str):
    """Text that leads to another page."""

    def __new__(cls, text: str, target: str) -> _Link:
        link = super().__new__(cls, f'<a href="{escape(target)}">{escape(text)}</a>')
        return link


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    def cell(value: Any) -> str:
        return f"<td>{value if isinstance(value, _Link) else escape(str(value))}</td>"

    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    top = "".join(f"<th>{escape(title)}</th>" for title in head)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
