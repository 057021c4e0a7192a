"""A history of nights with values that a test chooses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from synthetic import REPOSITORY

from dumbbell.compare.observed import digest
from dumbbell.metrics.values import VALUES
from dumbbell.nightly.changes import PAIRS, Pairs
from dumbbell.nightly.history import History, Series
from dumbbell.nightly.identity import identity
from dumbbell.nightly.judge import Acknowledgement, Finding, NotMeasured, judge
from dumbbell.run.directory import STAMP

LEAST = 0.02
MBIT = 1e6
INVENTORY = REPOSITORY / "inventory" / "lab"
FAIRNESS = REPOSITORY / "scenarios" / "two_flow_fairness.yml"
FIXTURES = REPOSITORY / "tests" / "unit" / "fixtures"
KERNEL = {"sender1 kernel": "6.12.1"}


def night(number: int) -> str:
    return f"{datetime(2026, 1, 1, 2, tzinfo=UTC) + timedelta(days=number - 1):{STAMP}}"


def rows(name: str, *goodputs: float, verdict: str = "passed", metric: str = "goodput") -> pl.DataFrame:
    found = [
        (name, "abc", "load=10mbit", i, verdict, metric, "tcp", "bps", goodput)
        for i, goodput in enumerate(goodputs, 1)
    ]
    return pl.DataFrame(found, schema=VALUES, orient="row")


class Nights:
    """A history, and what an A/B would find: the level of each kernel."""

    def __init__(self, folder: Path) -> None:
        self.history = History(folder / "history.sqlite")
        self.level, self.asked, self.count = 100.0, 0, 0
        self.kernels = True  # whether a former kernel can be had
        self.levels: dict[str, float] = {}
        self.metric, self.unit = "goodput", MBIT
        self.rng = np.random.default_rng(1)

    def values(self, n: int = 3, level: float | None = None) -> list[float]:
        level = self.level if level is None else level
        return [float(x) for x in level * self.unit * (1 + 0.005 * self.rng.standard_normal(n))]

    def in_turn(self, _: Series, before: Mapping[str, str], now: Mapping[str, str]) -> Pairs:
        self.asked += 1
        if not self.kernels:
            raise NotMeasured("the kernel is gone")
        sides = (self.values(PAIRS, self.levels[digest(of)]) for of in (before, now))
        return list(zip(*sides, strict=True))

    def passes(
        self, conditions: dict[str, str] = KERNEL, known: Sequence[Acknowledgement] = ()
    ) -> list[Finding]:
        """A night on this testbed, with this kernel."""
        self.count += 1
        name = night(self.count)
        found = identity(conditions, {})
        self.levels[digest(found.tested)] = self.level
        self.history.add(name, found, "on_off_udp", rows(name, *self.values(), metric=self.metric))
        return self.judged(known)

    def judged(
        self, known: Sequence[Acknowledgement] = (), points: Collection[str] | None = None
    ) -> list[Finding]:
        """What is said of the last night."""
        return list(judge(self.history, night(self.count), LEAST, known, self.in_turn, points=points))
