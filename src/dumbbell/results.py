"""Runs to work with in a notebook: ``dumbbell.open(path)`` gives a :class:`Run` or a :class:`RunSet`.

Both show themselves: verdict, numbers and a small figure. Tables are polars', and are read when they are
asked for. Figures are Plotly's: ``run.plot`` lists them. What a run lacks raises
:class:`dumbbell.studies.source.Missing`, whose message says what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from dumbbell import analysis
from dumbbell.metrics.values import values
from dumbbell.plan import refuse_newer_plan
from dumbbell.report import display
from dumbbell.report.plots import OF_RUN, OF_SET, Plots
from dumbbell.run.content import located
from dumbbell.run.directory import point_folders
from dumbbell.run.record import read_jsonl
from dumbbell.studies.points import Points
from dumbbell.studies.source import Missing, Source
from dumbbell.units import parse_duration

TABLES = ("flows", "values", "goodput", "samples", "events")  # of to_pandas, beside the Parquet files

EVENT = {"unix_ns": pl.Int64, **dict.fromkeys(("event", "host", "phase", "flow"), pl.String)}


def opened(*paths: Path | str) -> Run | RunSet:
    """:func:`dumbbell.open`."""
    found: list[Path] = []
    for path in map(located, paths):
        runs = [path] if (path / "plan.json").exists() else sorted(p.parent for p in path.glob("*/plan.json"))
        if not runs:
            raise FileNotFoundError(f"{path} is no directory of a run, and has none: there is no plan.json")
        for folder in runs:
            refuse_newer_plan(folder / "plan.json")
        found += [folder.resolve() for folder in runs]
    if len(found) == 1 and not point_folders(found[0]):
        return Run(found[0])
    return RunSet.open(*dict.fromkeys(found))


class Run(Source):
    """One point of a run, which is the whole run if nothing varies."""

    @property
    def flows(self) -> pl.DataFrame:
        """The measurement's rows of ``flows.parquet``: what each flow was asked, and what came of it."""
        return self.table("flows").filter(pl.col("phase") == "measurement")

    @cached_property
    def values(self) -> pl.DataFrame:
        """Every metric, as :func:`dumbbell.metrics.values.values` has them."""
        try:
            return values(self.dir)
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            raise Missing(f"There are no numbers of this run: {error}.") from None

    def goodput(self, width: str = "") -> pl.DataFrame:
        """Goodput in intervals of a width such as ``100ms``: ``[flow, t_ns, dt_ns, goodput_bps]``.

        ``t_ns`` is the middle, since t0. By default intervals are those of the report's figure.
        """
        return self.goodputs(parse_duration(width) if width else self.bin_ns())

    def samples(self, *columns: str, table: str = "tcp_info") -> pl.DataFrame:
        """Rows of the measurement of a table (docs/data-model.md), by default the samples of TCP_INFO.

        With ``columns`` these, after those that say of what a row is.
        """
        about = ("host", "flow", "side", "stream", "dev", "kind", "t_ns") if columns else ()
        return self.rows(table, *about, *columns)

    def events(self) -> pl.DataFrame:
        """What controller and agents reported, in order: ``[unix_ns, event, host, phase, flow, told]``.

        ``told`` is JSON: what else the event has (docs/data-model.md).
        """
        events = read_jsonl(self.dir / "events.jsonl")
        if not events:
            raise Missing("This run directory has no readable events.jsonl.")
        rows = [
            {name: event.get(name) for name in EVENT}
            | {"told": json.dumps({name: value for name, value in event.items() if name not in EVENT})}
            for event in events
        ]
        return pl.DataFrame(rows, EVENT | {"told": pl.String}, strict=False)

    def to_pandas(self, table: str = "flows") -> Any:
        """A table as pandas' DataFrame: one of :data:`TABLES`, or a Parquet file by its name."""
        return _pandas(_table(self, table))

    @property
    def plot(self) -> Plots:
        """Figures of a run, by name."""
        return Plots(self, OF_RUN)

    def __repr__(self) -> str:
        return f"<Run {self.name}: {self.verdict.get('state', 'no verdict')}>"

    def _repr_html_(self) -> str:
        return display.of_run(self)


class RunSet(Points):
    """The points of one or several runs. Iterating gives each as a :class:`Run`."""

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self.dirs)

    def __getitem__(self, place: int) -> Run:
        return Run(self.dirs[place])

    def goodput(self, width: str = "1s") -> pl.DataFrame:
        """Goodput of every point in intervals of a width, after the columns of :attr:`index`."""
        parts = []
        for place, run in enumerate(self):
            try:
                rates = run.goodput(width)
            except Missing:
                continue
            parts.append(rates.select(pl.lit(place, pl.Int64).alias("place"), pl.all()))
        if not parts:
            raise Missing(f"At none of {len(self)} points was a flow sampled.")
        return self.index.join(pl.concat(parts), on="place", maintain_order="right")

    def samples(self, *columns: str, table: str = "tcp_info") -> pl.LazyFrame:
        """As :meth:`Run.samples`, of all points, after :attr:`index`; ``.collect()`` reads them."""
        about = ("host", "flow", "side", "stream", "dev", "kind", "t_ns") if columns else ()
        return self.scan(table, *about, *columns)

    def events(self) -> pl.DataFrame:
        """Events of all points, with ``place``."""
        parts = []
        for place, run in enumerate(self):
            try:
                parts.append(run.events().select(pl.lit(place, pl.Int64).alias("place"), pl.all()))
            except Missing:
                continue
        if not parts:
            raise Missing(f"None of {len(self)} points has a readable events.jsonl.")
        return pl.concat(parts, how="diagonal_relaxed")

    def to_pandas(self, table: str = "flows") -> Any:
        """As :meth:`Run.to_pandas`, of all points."""
        return _pandas(_table(self, table))

    @property
    def plot(self) -> Plots:
        """Figures of a set, by name."""
        return Plots(self, OF_SET)

    def __repr__(self) -> str:
        valid = self.index["verdict"].is_in(analysis.VALID).sum()
        vary = ", ".join(f"{name} ({len(texts)})" for name, texts in self.levels.items() if len(texts) > 1)
        return f"<RunSet of {len(self)} points, {valid} valid; there vary {vary or 'nothing'}>"

    def _repr_html_(self) -> str:
        return display.of_set(self)


def _table(of: Run | RunSet, name: str) -> pl.DataFrame:
    if name not in TABLES:
        rows = of.samples(table=name)
        return rows.collect() if isinstance(rows, pl.LazyFrame) else rows
    found = getattr(of, name)
    rows = found() if callable(found) else found
    return rows.collect() if isinstance(rows, pl.LazyFrame) else rows


def _pandas(table: pl.DataFrame) -> Any:
    """Without pyarrow, which polars' own conversion needs. Integers with gaps become floats, as in pandas."""
    try:
        import pandas as pd  # noqa: PLC0415  nothing else needs it
    except ImportError:
        raise ImportError("pandas is not installed: pip install pandas") from None
    return pd.DataFrame({column.name: column.to_numpy() for column in table})
