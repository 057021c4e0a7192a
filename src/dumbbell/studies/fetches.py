"""Latency of fetches over HTTP."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import polars as pl

from dumbbell import analysis
from dumbbell.run.content import RunSet
from dumbbell.studies.source import Missing, Source
from dumbbell.units import human

PERCENTS = (50, 95, 99)


class FetchTimes:
    """Durations of fetches in a run directory of one or many points, by size and loss rate."""

    def __init__(self, run_dir: Path | str) -> None:
        self.points = [Source(path) for path in RunSet.open(run_dir).dirs]

    @cached_property
    def rows(self) -> pl.DataFrame:
        """:func:`analysis.fetches` of all http flows of all valid points, or Missing.

        With ``size`` (bytes; null of drawn ones), ``loss`` (share that the path is asked to lose in the
        direction of the data), ``congestion_control`` and ``connections``.
        """
        parts, left_out = [], 0
        for point in self.points:
            if len(self.points) > 1 and point.verdict.get("state") not in analysis.VALID:
                left_out += 1
                continue
            try:
                plan, rows = point.plan, point.rows("http_fetch")
            except Missing:
                continue
            for flow in plan.phase("measurement").flows:
                if flow.kind == "http":
                    way = plan.path.way(flow.direction) if plan.path else None
                    parts.append(
                        analysis.fetches(rows.filter(pl.col("flow") == flow.name)).with_columns(
                            size=pl.lit(flow.fetch_bytes, pl.Int64),
                            loss=pl.lit(1 - way.arriving if way else 0.0),
                            congestion_control=pl.lit(flow.congestion_control or "-"),
                            connections=pl.lit("one for all" if flow.persistent else "one for each"),
                        )
                    )
        found = pl.concat(parts, how="vertical_relaxed") if parts else pl.DataFrame({"done": []})
        if found.filter(pl.col("done").cast(pl.Boolean)).is_empty():
            which = f" in {len(self.points)} points, of which {left_out} are not valid" * (left_out > 0)
            raise Missing(f"No fetch over HTTP was done{which}.")
        return found

    @cached_property
    def groups(self) -> list[tuple[list[str], analysis.Latency]]:
        """``rows`` grouped by those four columns: the values in words, and the latency of the group."""
        by = ["size", "loss", "congestion_control", "connections"]
        found = []
        for key, rows in self.rows.sort(by, maintain_order=True).group_by(by, maintain_order=True):
            size, loss, control, connections = key
            bytes_ = "drawn" if size is None else human(size)
            names = [bytes_, human(loss, "share"), str(control), str(connections)]
            found.append((names, analysis.latency(rows, PERCENTS)))
        return [(names, latency) for names, latency in found if latency.fetches]
