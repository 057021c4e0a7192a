"""``fab compare``: compare two runs or sets of runs."""

from __future__ import annotations

from collections.abc import Sequence

from dumbbell.cli import tell
from dumbbell.compare.comparison import Comparison
from dumbbell.suite import NO_STATEMENT


def compare(a: Sequence[str], b: Sequence[str]) -> None:
    """Print the comparison of the runs of two sides; SystemExit if there is nothing to compare."""
    try:
        comparison = Comparison(a, b)
        tell(comparison.text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"there is nothing to compare: {error}") from None
    if comparison.rows.is_empty():
        raise SystemExit(NO_STATEMENT)
