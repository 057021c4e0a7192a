"""``fab index``: list all runs of a directory in its index.html."""

from __future__ import annotations

from pathlib import Path

from dumbbell.report.pages.index import render_index


def index(results: Path) -> None:
    """Write the page and print its path; SystemExit if there are no runs."""
    try:
        print(render_index(results))
    except OSError as error:
        raise SystemExit(f"there are no runs to list: {error}") from None
