"""How runs and sets show themselves in a notebook, without scripts: verdict, numbers, a small figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from dumbbell import analysis
from dumbbell.report import html
from dumbbell.report.figures.base import COLOURS
from dumbbell.run.catalogue import LEVEL
from dumbbell.studies.points import Points
from dumbbell.studies.source import Missing, Source
from dumbbell.units import human

ROWS = 12  # most flows or groups of points that are listed
BINS = 120  # of the small figure


@dataclass(frozen=True)
class Small:
    """Lines through the same axes, as an SVG; ``lines`` are name, colour and corners in pixels."""

    lines: list[tuple[str, str, list[tuple[float, float]]]]
    x_title: str
    y_title: str
    width: int = 420
    height: int = 110

    @classmethod
    def of(cls, series: Mapping[str, pl.DataFrame], x_title: str, unit: str) -> Small | None:
        """From tables ``[x, y]``; None if they are empty."""
        rows = pl.concat([own.select("x", "y") for own in series.values()]) if series else pl.DataFrame()
        if rows.is_empty():
            return None
        top, right = (float(rows[axis].max() or 0) or 1.0 for axis in ("y", "x"))  # type: ignore[arg-type]
        lines = [
            (
                name,
                COLOURS[i % len(COLOURS)],
                [(x / right * cls.width, cls.height * (1 - y / top)) for x, y in own.iter_rows()],
            )
            for i, (name, own) in enumerate(series.items())
        ]
        return cls(lines, f"0 to {right:.4g} {x_title}", f"0 to {human(top, unit)}")


def of_run(run: Source) -> str:
    """The display of one point."""
    try:
        flows = run.planned_flows
        title, label = run.opened.plan.title, run.plan.label
    except Missing as missing:
        flows, title, label = [], str(missing), ""
    try:
        width_ns = max(run.bin_ns(), run.plan.phase("measurement").duration_ns // BINS)
        rates = run.goodputs(width_ns)
        drawn = {
            flow.name: rates.filter(flow=flow.name).select(x=pl.col("t_ns") / 1e9, y="goodput_bps")
            for flow in flows
        }
        small = Small.of(drawn, "s", "bps")
    except Missing:
        small = None
    return html.part(
        "display.html",
        "run",
        name=run.name,
        title=title,
        label=label,
        state=run.verdict.get("state", "unknown"),
        reasons=run.verdict.get("reasons", [])[:ROWS],
        head=["flow", "kind", "congestion control", "goodput", "median RTT", "segments again"],
        rows=list(_flow_rows(run))[:ROWS],
        more=max(len(flows) - ROWS, 0),
        small=small,
    )


def _flow_rows(run: Source) -> list[list[str]]:
    try:
        flows = run.table("flows").filter(pl.col("phase") == "measurement")
    except Missing:
        return []
    return [
        [
            flow["name"],
            flow["kind"],
            flow["congestion_control_measured"] or flow["congestion_control"] or "-",
            human(flow["goodput_bps"], "bps"),
            human(flow.get("rtt_p50_ns"), "ns"),
            human(flow.get("retransmits"), "share"),
        ]
        for flow in flows.iter_rows(named=True)
    ]


def of_set(points: Points) -> str:
    """The display of several points: from their tables of flows only, so that it is quick."""
    states = points.index["verdict"].value_counts(sort=True)
    varying = [name for name, texts in points.levels.items() if len(texts) > 1]
    rows: list[list[str]] = []
    groups = 0
    try:
        valid = _shown(points)
        by = [LEVEL + name for name in varying]
        columns = {"goodput_bps": "bps", "rtt_p50_ns": "ns", "retransmits": "share"}
        known = {name: unit for name, unit in columns.items() if name in valid.columns}
        found = valid.group_by(*by, "name", maintain_order=True).agg(pl.len(), pl.col(*known).median())
        groups = found.height
        for row in found.head(ROWS).iter_rows(named=True):
            told = [human(row.get(name), unit) for name, unit in columns.items()]
            rows.append([*(row[name] or "-" for name in by), row["name"], *told, str(row["len"])])
    except Missing:
        pass
    return html.part(
        "display.html",
        "set",
        count=len(points),
        states=[(row["verdict"], row["count"]) for row in states.iter_rows(named=True)],
        levels=points.levels.items(),
        head=[*varying, "flow", "goodput", "median RTT", "segments again", "repetitions"],
        rows=rows,
        more=max(groups - ROWS, 0),
        small=_small(points),
    )


def _shown(points: Points) -> pl.DataFrame:
    """Flows of valid points, without those of baselines if there are others."""
    valid = points.flows.filter(pl.col("verdict").is_in(analysis.VALID))
    own = valid.filter(pl.col("baseline").is_null())
    return valid if own.is_empty() else own


def _small(points: Points) -> Small | None:
    """Goodput of each flow at each point, in the order of the run."""
    try:
        flows = _shown(points)
    except Missing:
        return None
    rows = flows.select("name", x=pl.col("place") + 1, y="goodput_bps").drop_nulls()
    series = {str(name): own.select("x", "y") for (name,), own in rows.group_by("name", maintain_order=True)}
    return Small.of(dict(list(series.items())[: len(COLOURS)]), "(number of the point)", "bps")
