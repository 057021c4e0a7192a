"""Runs that a user names."""

from __future__ import annotations

from dumbbell.results import Run, RunSet, opened
from dumbbell.versions import NewerError


def named(run: str) -> Run | RunSet:
    """The run in a directory, or the points of several, with commas between them; SystemExit without
    any that can be read.
    """
    try:
        return opened(*run.split(","))
    except (FileNotFoundError, NewerError) as error:
        raise SystemExit(str(error)) from None


def points_of(run: str) -> RunSet:
    """The same as a set, also of one point."""
    found = named(run)
    return RunSet([found.dir]) if isinstance(found, Run) else found
