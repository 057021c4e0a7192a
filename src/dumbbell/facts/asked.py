"""The input of a check: the plan, the run directory and the run's tables."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from dumbbell.plan import Phase, Point
from dumbbell.run.content import Run


@dataclass(frozen=True)
class Asked:
    """A run and its tables, by the names of their measurements."""

    run: Run
    tables: dict[str, pl.DataFrame]

    @property
    def point(self) -> Point:
        """The point that was planned."""
        return self.run.point

    @property
    def measurement(self) -> Phase:
        """The phase in which the flows run."""
        return self.run.point.phase("measurement")


def lost_share(lost: int | None, kept: int | None) -> float | None:
    """Lost packets as a share of all packets; None if either number is not known."""
    return None if lost is None or kept is None else lost / max(lost + kept, 1)
