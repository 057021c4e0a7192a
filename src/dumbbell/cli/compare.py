"""``fab compare``: compare runs or sets of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dumbbell.cli import tell
from dumbbell.report.pages.comparison import Comparison
from dumbbell.report.vector import write
from dumbbell.studies.source import Missing
from dumbbell.suite import NO_STATEMENT

UNNAMED = ("the first", "the second", "the third", "the fourth", "the fifth", "the sixth")


def compare(sets: Sequence[str], figure: Path | None = None) -> None:
    """Print the comparison of the first set with each other, and write a figure of it.

    Each set is ``[NAME=]DIRECTORY[,DIRECTORY...]``. SystemExit if there is nothing to compare.
    """
    if len(sets) > len(UNNAMED):
        raise SystemExit(f"{len(sets)} sets were named: at most {len(UNNAMED)} can be compared at once")
    named = [text.rpartition("=") for text in sets]
    names = [name or UNNAMED[i] for i, (name, _, _) in enumerate(named)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SystemExit(f"{twice[0]} is the name of several sets: give each a name of its own")
    first, second, *others = (directories.split(",") for _, _, directories in named)
    try:
        comparison = Comparison(first, second, names, others=others)
        tell(comparison.text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"there is nothing to compare: {error}") from None
    if comparison.rows.is_empty():
        raise SystemExit(NO_STATEMENT)
    if figure is not None:
        try:
            write({figure: comparison.ratios()})
        except (Missing, RuntimeError, ValueError, OSError) as error:
            raise SystemExit(str(error)) from None
        tell(str(figure))
