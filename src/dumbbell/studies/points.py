"""The points of one or several runs, with the values of what varies between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import polars as pl

from dumbbell import analysis
from dumbbell.metrics.values import VALUES, values
from dumbbell.run import catalogue
from dumbbell.run.catalogue import LEVEL, OF_POINT
from dumbbell.run.content import IN_MEASUREMENT, RunSet
from dumbbell.studies.source import Missing, Source
from dumbbell.units import quantity

MEDIANS = ("goodput", "rtt", "retransmits")
_FILE = "file"


class Points:
    """Points in their order. Tables are read when they are asked for.

    A point is known by ``place``, its index here. Only points with a valid result have numbers.
    """

    def __init__(self, dirs: Sequence[Path]) -> None:
        self.dirs = list(dirs)

    @classmethod
    def open(cls, *run_dirs: Path | str) -> Self:
        """The points of runs that have a verdict; paths as for :meth:`RunSet.open`."""
        return cls(RunSet.open(*run_dirs).dirs)

    def __len__(self) -> int:
        return len(self.dirs)

    def __iter__(self) -> Iterator[Source]:
        return map(Source, self.dirs)

    @cached_property
    def index(self) -> pl.DataFrame:
        """A row for each point: ``[place, run, repetition, verdict, baseline, level_NAME ...]``."""
        return catalogue.index(self.dirs)

    @property
    def levels(self) -> dict[str, list[str]]:
        """What varies, with its values in the order of the plan; numbers by their size."""
        return {
            column.removeprefix(LEVEL): in_order(self.index[column].drop_nulls().unique(maintain_order=True))
            for column in self.index.columns
            if column.startswith(LEVEL)
        }

    def where(self, **levels: str | Sequence[str]) -> Self:
        """The points with these values: ``where(queue="short", congestion_control=["cubic", "bbr"])``.

        ``verdict``, ``baseline`` and ``repetition`` can be named too. ValueError for an unknown name.
        """
        found = self.index
        for name, wanted in levels.items():
            column = name if name in OF_POINT else LEVEL + name
            if column not in found.columns:
                known = ", ".join([*self.levels, "verdict", "baseline", "repetition"])
                raise ValueError(f"{name} does not vary between these points; there are {known}")
            texts = [wanted] if isinstance(wanted, str | int) else list(wanted)
            found = found.filter(pl.col(column).cast(pl.String).is_in([str(text) for text in texts]))
        return type(self)([self.dirs[place] for place in found["place"]])

    @property
    def valid(self) -> pl.DataFrame:
        """The rows of :attr:`index` whose points have a valid result."""
        return self.index.filter(pl.col("verdict").is_in(analysis.VALID))

    @cached_property
    def flows(self) -> pl.DataFrame:
        """The flows of all measurements, as in ``flows.parquet``, after the columns of :attr:`index`."""
        return self.scan("flows").collect()

    @cached_property
    def values(self) -> pl.DataFrame:
        """Metrics of valid points, ``[*index, metric, subject, congestion_control, unit, value]``.

        As :func:`dumbbell.metrics.values.values` has them. ``congestion_control`` is that of the flow.
        """
        parts = [self._values(place) for place in self.valid["place"]]
        found = pl.concat(parts) if parts else pl.DataFrame(schema={"place": pl.Int64, **VALUES})
        controls = self._controls.rename({"flow": "subject"})
        found = found.select("place", "metric", "subject", "unit", "value")
        of = found.join(controls, on=["place", "subject"], how="left", maintain_order="left")
        order = (*self.index.columns, "metric", "subject", "congestion_control", "unit", "value")
        return of.join(self.index, on="place", how="left", maintain_order="left").select(order)

    def _values(self, place: int) -> pl.DataFrame:
        try:
            return values(self.dirs[place]).select(pl.lit(place, pl.Int64).alias("place"), pl.all())
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            raise Missing(f"There are no numbers of {self.dirs[place]}: {error}.") from None

    @cached_property
    def _controls(self) -> pl.DataFrame:
        """``[place, flow, congestion_control]``, as measured; ``UDP`` of datagrams."""
        try:
            flows = self.flows
        except Missing:
            return pl.DataFrame(
                schema={"place": pl.Int64, "flow": pl.String, "congestion_control": pl.String}
            )
        names = ("congestion_control_measured", "congestion_control", "kind")
        known = [pl.col(name).cast(pl.String) for name in names if name in flows.columns]
        control = pl.coalesce(*known, pl.lit(None, pl.String)).alias("congestion_control")
        control = control.replace(dict.fromkeys(("udp", "iperf3_udp"), "UDP"))
        return flows.select("place", pl.col("name").alias("flow"), control)

    def of_metric(self, metric: str) -> pl.DataFrame:
        """The rows of one metric in :attr:`values`, or Missing."""
        found = self.values.filter(pl.col("metric") == metric)
        if found.is_empty():
            known = ", ".join(self.values["metric"].unique(maintain_order=True)) or "none"
            raise Missing(f"No valid one of {len(self)} points has the metric {metric}; they have {known}.")
        return found

    def medians(self, metrics: Sequence[str] = MEDIANS) -> pl.DataFrame:
        """A row for each combination of levels and each flow: medians of metrics, with 95 % intervals.

        ``[level_NAME ..., baseline, flow, congestion_control, repetitions]``, and of each metric, by its name
        and unit (``goodput_bps``), the median, ``_low`` and ``_high``; without an interval of one repetition.
        Metrics that no flow has are left out. Missing without any.
        """
        by = [*(LEVEL + name for name in self.levels), "baseline", "subject", "congestion_control"]
        found: pl.DataFrame | None = None
        for metric in metrics:
            of = self.values.filter(pl.col("metric") == metric)
            if of.is_empty():
                continue
            name = f"{metric}_{of['unit'][0]}".rstrip("_")
            rows = []
            for key, own in of.group_by(by, maintain_order=True):
                interval = analysis.median_interval(own["value"].to_list())
                low, high = (interval.low, interval.high) if interval else (None, None)
                rows.append((*key, own.height, own["value"].median(), low, high))
            numbers = dict.fromkeys((name, f"{name}_low", f"{name}_high"), pl.Float64)
            schema = dict.fromkeys(by, pl.String) | {"repetitions": pl.Int64} | numbers
            part = pl.DataFrame(rows, schema, orient="row")
            if found is None:
                found = part
            else:
                more = part.drop("repetitions")
                found = found.join(more, on=by, how="left", nulls_equal=True, maintain_order="left")
        if found is None:
            raise Missing(f"No valid one of {len(self)} points has {', '.join(metrics)}.")
        places = [
            pl.col(LEVEL + name).replace_strict(
                {text: place for place, text in enumerate(texts)}, default=None, return_dtype=pl.Int64
            )
            for name, texts in self.levels.items()
        ]
        return found.sort(
            "baseline", *places, "subject", nulls_last=[False, *[True] * (len(places) + 1)]
        ).rename({"subject": "flow"})

    def scan(self, table: str, *columns: str) -> pl.LazyFrame:
        """Rows of the measurement of all points, after the columns of :attr:`index`; nothing is read yet.

        Points without this table are left out. Missing if none has it.
        """
        files: dict[tuple[tuple[str, pl.DataType], ...], list[tuple[int, str]]] = {}  # by their columns
        for place, folder in enumerate(self.dirs):
            path = folder / f"{table}.parquet"
            try:
                there = pl.read_parquet_schema(path)
            except FileNotFoundError:
                continue
            files.setdefault(tuple(there.items()), []).append((place, str(path)))
        if not files:
            raise Missing(f"None of {len(self)} points has {table}.parquet.")
        parts = [self._scan([name for name, _ in there], of, columns) for there, of in files.items()]
        found = pl.concat(parts, how="diagonal_relaxed")
        return found if len(parts) == 1 else found.sort("place", maintain_order=True)

    def _scan(
        self, there: Sequence[str], files: Sequence[tuple[int, str]], columns: Sequence[str]
    ) -> pl.LazyFrame:
        """Rows of files that have the same columns, ``there``."""
        about = pl.DataFrame(files, {"place": pl.Int64, _FILE: pl.String}, orient="row").join(
            self.index, on="place", how="left", maintain_order="left"
        )
        rows = pl.scan_parquet([path for _, path in files], include_file_paths=_FILE)
        rows = rows.filter(IN_MEASUREMENT if "t_ns" in there else pl.col("phase") == "measurement")
        own = [c for c in there if (c in columns or not columns) and c not in self.index.columns]
        rows = rows.select(_FILE, *own).join(about.lazy(), on=_FILE, how="left", maintain_order="left")
        return rows.select(*self.index.columns, *own)


def in_order(levels: Sequence[str] | pl.Series) -> list[str]:
    """Levels as an axis has them: by size if all are quantities of one kind, else as they are."""
    found = [(quantity(text), text) for text in levels]
    if len({of[1] if of else None for of, _ in found}) == 1 and all(of for of, _ in found):
        return [text for _, text in sorted(found, key=lambda one: one[0][0] if one[0] else 0)]
    return list(levels)
