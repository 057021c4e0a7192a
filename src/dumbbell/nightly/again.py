"""Measure points again in the same night, to confirm their changes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import polars as pl

from dumbbell import analysis
from dumbbell.metrics.values import VALUES, values
from dumbbell.nightly.changes import AGAIN
from dumbbell.nightly.history import Series
from dumbbell.nightly.judge import NotMeasured
from dumbbell.plan import Inventory, Plan
from dumbbell.suite import Budget, Entry, Outcome, run_entry


class Remeasured:
    """Measures points again, each once a night for all of its series, within the budget."""

    def __init__(
        self, inventory: Path, folder: Path, ran: Iterable[tuple[Outcome, Plan]], budget: Budget
    ) -> None:
        self._inventory, self._folder, self._budget = inventory, folder, budget
        self.exact = Inventory.read(inventory).virtual
        self._ran = {str(outcome.run_dir): (outcome.entry, wanted) for outcome, wanted in ran}
        self._found: dict[str, tuple[pl.DataFrame, str]] = {}

    def __call__(self, series: Series) -> list[float]:
        """Values of a series, measured again tonight. Raises NotMeasured if there are too few."""
        point = series.key.point
        if point not in self._found:
            if series.runs[-1] not in self._ran:
                raise NotMeasured("it is no longer in the suite")
            self._found[point] = self._measure(*self._ran[series.runs[-1]], point)
        rows, why = self._found[point]
        found = rows.filter(metric=series.key.metric, subject=series.key.subject)["value"].to_list()
        if len(found) < (1 if self.exact else AGAIN // 2):
            raise NotMeasured(why or f"{len(found)} of {AGAIN} runs have a number")
        return found

    def _measure(self, entry: Entry, wanted: Plan, point: str) -> tuple[pl.DataFrame, str]:
        """Numbers of a point, and the reason if there are too few."""
        results = self._folder / "again" / point
        own = wanted.model_copy(update={"points": [p for p in wanted.points if p.id == point]})
        times = 1 if self.exact else AGAIN
        for _ in range(times):
            rows = _valid(results)
            if rows.select("run", "repetition").n_unique() >= times:
                return rows, ""
            if why := self._budget.refuses(own):
                return rows, why
            run_entry(entry, self._inventory, results, virtual=self.exact, point=point)
        return _valid(results), "most of its runs were not valid"


def _valid(results: Path) -> pl.DataFrame:
    """Numbers of the valid points of all runs in a directory; unreadable runs are left out."""
    tables = [pl.DataFrame(schema=VALUES)]
    for run in sorted(results.glob("[0-9]*/verdict.json")):
        with suppress(OSError, ValueError, pl.exceptions.PolarsError):
            tables.append(values(run.parent))
    return pl.concat(tables).filter(pl.col("verdict").is_in(analysis.VALID))
