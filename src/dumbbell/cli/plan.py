"""``fab plan``: show what a scenario asks for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dumbbell.cli import tell
from dumbbell.inventory import Inventory, InventoryError


def show(scenario: Path, inventory: Path, profile: str | None, point: str | None) -> None:
    """Print the plan; of a point in detail, of `all`, or of the first. SystemExit with what is wrong."""
    with ThreadPoolExecutor(1) as meanwhile:  # Ansible takes as long to start as the planner
        reading = meanwhile.submit(Inventory.read, inventory)
        from dumbbell.plan import describe, plan  # noqa: PLC0415
        from dumbbell.scenario import ScenarioError  # noqa: PLC0415
    try:
        planned = plan(scenario, reading.result(), profile)
        tell(describe(planned, point))
    except (ScenarioError, InventoryError) as error:
        raise SystemExit(str(error)) from None
