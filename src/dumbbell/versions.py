"""Versions of the files that Dumbbell writes and reads again: docs/versions.md."""

from __future__ import annotations

import re
from pathlib import Path

_BEGINS = re.compile(rb'\s*\{\s*"schema_version"\s*:\s*(\d+)')


class NewerError(ValueError):
    """A newer Dumbbell has written a file, in a format that this one does not know."""


def refuse(path: Path, version: int, known: int) -> None:
    """NewerError, which names file and versions, if the version is above the last one that is known."""
    if version > known:
        raise NewerError(
            f"{path} has version {version}, and this Dumbbell reads up to {known}: update Dumbbell"
        )


def refuse_newer(path: Path, known: int) -> None:
    """The same of a JSON file that begins with ``schema_version``. Without it or the file nothing is refused.

    Only the first bytes are read: the plan of a run may have ten thousand points.
    """
    try:
        with path.open("rb") as file:
            begins = _BEGINS.match(file.read(64))
    except FileNotFoundError:
        return
    if begins:
        refuse(path, int(begins[1]), known)
