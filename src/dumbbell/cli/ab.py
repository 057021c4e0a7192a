"""``fab ab``: run two profiles of a scenario in turn, and compare them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dumbbell.cli import tell
from dumbbell.compare.comparison import Comparison
from dumbbell.inventory import InventoryError
from dumbbell.scenario import ScenarioError
from dumbbell.suite import NO_STATEMENT, UNEXPLAINED, in_turn, interrupted


def ab(
    scenario: Path, profiles: tuple[str, str], rounds: int, inventory: Path, accept: Sequence[str]
) -> None:
    """Run so many rounds below results/, and print the table; SystemExit where there is none."""
    folder = Path("results", f"ab_{scenario.stem}_{profiles[0]}_{profiles[1]}")
    try:
        first, second = in_turn(scenario, profiles, rounds, inventory, folder)
        comparison = Comparison(first, second, profiles, accept)
        tell(comparison.no_verdict() if comparison.unexplained else comparison.mail())
    except (ScenarioError, InventoryError, OSError, ValueError) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(interrupted()) from None
    if comparison.unexplained:
        raise SystemExit(UNEXPLAINED)
    if comparison.rows.is_empty():
        raise SystemExit(NO_STATEMENT)
