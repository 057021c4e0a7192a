"""What a run was asked to be, and what it left: what checks of one subject are made of."""

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
        """The plan."""
        return self.run.point

    @property
    def measurement(self) -> Phase:
        """The phase in which the flows run."""
        return self.run.point.phase("measurement")


def lost_share(lost: int | None, kept: int | None) -> float | None:
    """Of all; None if one of them is not known."""
    return None if lost is None or kept is None else lost / max(lost + kept, 1)
