"""Hands-on work with a testbed: ``fab --list``. The work is done in the package; playbooks change hosts."""

import signal
from pathlib import Path

from fabric import task

from dumbbell.model import ScenarioError
from dumbbell.plan import Inventory, InventoryError, describe
from dumbbell.plan import plan as make_plan


@task(
    help={
        "scenario": "file of the scenario",
        "inventory": "Ansible's inventory, by default the lab's",
        "profile": "profile of the scenario to lay over it",
        "point": "id of a point to show in detail, or `all`; by default the first",
    }
)
def plan(_, scenario, inventory="inventory/lab", profile=None, point=None):
    """Show what a scenario asks for: points, flows over time, what each host does when, how long it takes."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # it may be piped into head
    try:
        planned = make_plan(Path(scenario), Inventory.read(Path(inventory)), profile)
        print(describe(planned, point))
    except (ScenarioError, InventoryError) as error:
        raise SystemExit(str(error)) from None
