"""Reads one point of a run; missing data raises :class:`Missing`, whose message is a sentence for people."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell import analysis
from dumbbell.metrics.flows import COUNTED, goodput_counters
from dumbbell.plan import Flow, Point
from dumbbell.run.content import IN_MEASUREMENT, Run, located
from dumbbell.run.record import read_json

BINS = 1500  # the most intervals of a goodput line


class Missing(Exception):
    """The run lacks the requested data; the message is a sentence that says what is missing."""


class Source:
    """The tables, plan and verdict of one point; missing ones raise :class:`Missing`."""

    def __init__(self, run_dir: Path | str) -> None:
        self.dir = located(run_dir)
        self.manifest: dict[str, Any] = read_json(self.dir / "manifest.json") or {}
        self.verdict: dict[str, Any] = read_json(self.dir / "verdict.json") or {}
        try:
            self.run: Run | None = Run.open(self.dir)
        except (OSError, ValueError):
            self.run = None

    @property
    def name(self) -> str:
        """The run's id, or the name of its directory."""
        return str(self.manifest.get("run", self.dir.name))

    @property
    def opened(self) -> Run:
        """The run, or Missing."""
        if self.run is None:
            raise Missing("This run directory has no readable plan.json to relate samples to.")
        return self.run

    @property
    def plan(self) -> Point:
        """What was planned for the point that was run, or Missing."""
        return self.opened.point

    def table(self, name: str, *columns: str, where: pl.Expr | None = None) -> pl.DataFrame:
        """:meth:`rows`, or Missing if there are none."""
        table = self.rows(name, *columns, where=where)
        if table.is_empty():
            raise Missing(f"{name}.parquet holds no rows of the measurement whose time since t0 is known.")
        return table

    def rows(self, name: str, *columns: str, where: pl.Expr | None = None) -> pl.DataFrame:
        """Rows of the measurement phase, possibly none; Missing if there is no such file.

        Only the requested columns and rows are read: a table of a long run may be larger than memory.
        """
        try:
            table = pl.scan_parquet(self.dir / f"{name}.parquet")
            there = table.collect_schema().names()
            if "t_ns" in there:
                table = table.filter(IN_MEASUREMENT)
            if where is not None:
                table = table.filter(where)
            return table.select([c for c in there if c in columns] if columns else pl.all()).collect()
        except (OSError, pl.exceptions.PolarsError):
            raise Missing(f"This run directory has no readable {name}.parquet.") from None

    @property
    def planned_flows(self) -> list[Flow]:
        """The flows of the measurement, in the plan's order, or Missing."""
        return self.plan.phase("measurement").flows

    @property
    def x_max_s(self) -> float:
        """The length of the time axis."""
        return self.plan.phase("measurement").duration_ns / 1e9

    def checks(self, name: str) -> Iterator[dict[str, Any]]:
        """The checks of the verdict with this name."""
        return (check for check in self.verdict.get("checks", []) if check["name"] == name)

    def graded(self, names: Iterable[str]) -> dict[tuple[str, str], dict[str, tuple[Any, str]]]:
        """Value and grade of RFC 4898 variables that are known, by the flow and stream of each sender."""
        found: dict[tuple[str, str], dict[str, tuple[Any, str]]] = {}
        flows = self.plan.phase("measurement").flows
        place = pl.col("flow").replace_strict({flow.name: i for i, flow in enumerate(flows)}, default=None)
        stream = pl.col("stream").cast(pl.Int64, strict=False)
        rows = self.table("web100").filter(pl.col("side") == "sender").sort(place, "flow", stream)
        for row in rows.iter_rows(named=True):
            told = {name: (row[name], row["grade"]) for name in names if row.get(name) is not None}
            found.setdefault((row["flow"], row["stream"]), {}).update(told)
        return found

    def bin_ns(self) -> int:
        """The width of the intervals of a line over time."""
        phase = self.plan.phase("measurement")
        return max(phase.sampling_interval_ns, phase.duration_ns // BINS)

    @functools.cached_property
    def counters(self) -> pl.DataFrame:
        """Payload bytes that each flow has delivered so far, as for :func:`analysis.goodput`, or Missing."""
        needed = {"tcp_info": analysis.COUNTED_FROM}
        tables = {name: self.rows(name, *needed.get(name, ())) for name in COUNTED}
        counted = goodput_counters(self.opened, tables)
        if counted.is_empty():
            raise Missing("No socket was sampled, so there is no goodput to show.")
        return counted

    def goodputs(self, width_ns: int) -> pl.DataFrame:
        """:func:`analysis.goodput` of each flow in intervals of this width, or Missing."""
        end_ns = self.plan.phase("measurement").duration_ns
        return analysis.goodput(self.counters, analysis.steps(0, end_ns, width_ns))
