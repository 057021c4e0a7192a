"""A history of nights with values that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from synthetic import REPOSITORY

from dumbbell.metrics.values import VALUES
from dumbbell.nightly.history import History, Series
from dumbbell.nightly.judge import Acknowledgement, Finding, judge

LEAST = 0.02
INVENTORY = REPOSITORY / "inventory" / "lab"
FAIRNESS = REPOSITORY / "scenarios" / "two_flow_fairness.yml"
KERNEL = {"sender1 kernel": "6.12.1"}


def night(number: int) -> str:
    return f"202601{number:02}T020000Z"


def rows(name: str, *goodputs: float, verdict: str = "passed", metric: str = "goodput") -> pl.DataFrame:
    found = [
        (name, "abc", "load=10mbit", i, verdict, metric, "tcp", "bps", goodput)
        for i, goodput in enumerate(goodputs, 1)
    ]
    return pl.DataFrame(found, schema=VALUES, orient="row")


class Nights:
    """A history, and what measuring again would find."""

    def __init__(self, folder: Path) -> None:
        self.history = History(folder / "history.sqlite")
        self.level, self.asked, self.count = 100.0, 0, 0
        self.metric = "goodput"
        self.rng = np.random.default_rng(1)

    def values(self, n: int = 3) -> list[float]:
        return [float(x) for x in self.level * (1 + 0.005 * self.rng.standard_normal(n))]

    def again(self, _: Series) -> Sequence[float]:
        self.asked += 1
        return self.values(8)

    def passes(
        self, testbed: dict[str, str] = KERNEL, known: Sequence[Acknowledgement] = ()
    ) -> list[Finding]:
        self.count += 1
        name = night(self.count)
        self.history.add(name, testbed, "on_off_udp", rows(name, *self.values(), metric=self.metric))
        return list(judge(self.history, name, LEAST, known, self.again))
