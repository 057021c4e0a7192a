"""Compare two sets of runs: by how much they differ, and which changes the repetitions can show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from dumbbell.analysis.statistics import LEVEL, detectable, holm, rank_test, ratio_interval

KEY = ["point", "metric", "subject", "unit"]
COMPARED = {
    **dict.fromkeys(KEY, pl.String),
    "n_a": pl.Int64,
    "n_b": pl.Int64,
    "median_a": pl.Float64,
    "median_b": pl.Float64,
    "ratio": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "detectable": pl.Float64,
    "p": pl.Float64,
    "differ": pl.Boolean,
}

VALID = ("passed", "failed")  # verdicts of runs whose numbers are results


def compare(a: pl.DataFrame, b: pl.DataFrame, *, exact: bool = False) -> pl.DataFrame:
    """Rows for each point, metric and subject that both sides have, in the order of ``a``.

    ``a`` and ``b`` are tables of :func:`dumbbell.metrics.values.values`, of one run or of several; only
    values of valid runs (``passed``, ``failed``) count. ``ratio`` is b's median over a's, ``low`` and
    ``high`` its interval at 95 %, null of fewer than two values each; of few it is too narrow. ``detectable``
    is the smallest relative change that a's spread lets so many repetitions show among so many rows. ``p`` is
    that of Mann and Whitney's test, corrected for the number of rows (Holm); ``differ`` is whether it is
    below 5 %, null where so few values could not have shown that whatever they were. Of ``exact`` values,
    those of virtual time, which the same plan gives again, one is enough: ``differ`` is whether a repetition
    has a value on one side that it has not on the other, null where they have no repetition in common.
    """
    sides = [_gathered(table) for table in (a, b)]
    both = sides[0].join(sides[1], on=KEY, suffix="_b", maintain_order="left")
    rows, ps = [], []
    for row in both.iter_rows(named=True):
        old, new = row["values"], row["values_b"]
        interval = ratio_interval(new, old)
        medians = (float(pl.Series(old).median()), float(pl.Series(new).median()))  # type: ignore[arg-type]
        rows.append(
            {key: row[key] for key in KEY}
            | {"n_a": len(old), "n_b": len(new), "median_a": medians[0], "median_b": medians[1]}
            | {
                "ratio": medians[1] / medians[0] if medians[0] else None,
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
                "detectable": detectable(old, min(len(old), len(new)), tests=both.height),
            }
        )
        ps.append(rank_test(new, old))
    for row, p in zip(rows, holm(ps), strict=True):
        least = 2 / math.comb(row["n_a"] + row["n_b"], row["n_a"]) * len(rows)
        row |= {"p": p, "differ": p < 1 - LEVEL if least < 1 - LEVEL else None}
    if exact:
        for row, found in zip(rows, both.select("exact", "exact_b").iter_rows(), strict=True):
            row["differ"] = _exactly_differ(*(_by_repetition(side) for side in found))
    return pl.DataFrame(rows, schema=COMPARED)


def _gathered(table: pl.DataFrame) -> pl.DataFrame:
    valid = table.filter(pl.col("verdict").is_in(VALID))
    return valid.group_by(KEY, maintain_order=True).agg(
        values=pl.col("value"), exact=pl.struct("repetition", "value")
    )


def _by_repetition(found: Iterable[Mapping[str, Any]]) -> dict[int, set[float]]:
    values: dict[int, set[float]] = {}
    for one in found:
        values.setdefault(one["repetition"], set()).add(one["value"])
    return values


def _exactly_differ(old: Mapping[int, set[float]], new: Mapping[int, set[float]]) -> bool | None:
    both = old.keys() & new.keys()
    return any(old[repetition] != new[repetition] for repetition in both) if both else None


def only_one_has(a: pl.DataFrame, b: pl.DataFrame, names: tuple[str, str]) -> list[str]:
    """Points of valid runs that the other side lacks.

    Empty if one side has no valid run at all, since it lacks every point.
    """
    points = [list(_gathered(table)["point"].unique(maintain_order=True)) for table in (a, b)]
    return [
        f"only {name} has {point}"
        for name, own, other in ((names[0], points[0], points[1]), (names[1], points[1], points[0]))
        for point in own
        if other and point not in other
    ]
