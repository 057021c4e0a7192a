"""Dumbbell: a controller for physical TCP testbeds.

``dumbbell.open("results/latest")`` gives a run, or the points of a sweep, to work with in a notebook.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dumbbell.results import Run, RunSet

_SHIPPED = Path(__file__).parent / "shipped"  # in a wheel: scenarios, and inventories to plan them with
# The checkout, or a wheel's part of it.
REPOSITORY = _SHIPPED if _SHIPPED.is_dir() else Path(__file__).parents[2]


def open(*paths: Path | str) -> Run | RunSet:
    """The run in a directory, or the points of several: see :mod:`dumbbell.results`.

    A path is that of a run, of a point of a run, or of an archive of runs (a directory of run directories).
    Relative paths are searched from here and from each directory above. FileNotFoundError if there is no run,
    NewerError if a newer Dumbbell has written it.
    """
    from dumbbell.results import opened  # noqa: PLC0415  commands that show no results do without

    return opened(*paths)
