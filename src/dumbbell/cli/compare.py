"""``fab compare``: compare two runs or sets of runs."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from dumbbell.compare.comparison import Comparison
from dumbbell.suite import NO_STATEMENT


def compare(a: Sequence[str], b: Sequence[str]) -> None:
    """Print the comparison of the runs of two sides; SystemExit if there is nothing to compare."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        comparison = Comparison(a, b)
        print(comparison.text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"there is nothing to compare: {error}") from None
    if comparison.rows.is_empty():
        raise SystemExit(NO_STATEMENT)
