"""Dumbbell: a controller for physical TCP testbeds.

``dumbbell.open("results/latest")`` gives a run, or the points of a sweep, to work with in a notebook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from dumbbell.results import Run, RunSet


def open(*paths: Path | str) -> Run | RunSet:
    """The run in a directory, or the points of several: see :mod:`dumbbell.results`.

    A path is that of a run, of a point of a run, or of an archive of runs (a directory of run directories).
    Relative paths are searched from here and from each directory above. FileNotFoundError if there is no run,
    NewerError if a newer Dumbbell has written it.
    """
    from dumbbell.results import opened  # noqa: PLC0415  commands that show no results do without

    return opened(*paths)
