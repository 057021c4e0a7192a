"""From a scenario and an inventory to ``plan.json``: hosts, actions, addresses and ports, at offsets from t0.

The contract is ``docs/data-model.md``. The same scenario, seed and inventory give the same bytes.
"""

from dumbbell.plan.describe import describe
from dumbbell.plan.document import Expectation, Flow, Host, Phase, PingAction, Plan, Point, Sample, Validity
from dumbbell.plan.inventory import Inventory, InventoryError
from dumbbell.plan.path import PACKET_BYTES, UDP_HEADER_BYTES, Direction, PlannedPath, Queue
from dumbbell.plan.planner import plan

__all__ = [
    "PACKET_BYTES",
    "UDP_HEADER_BYTES",
    "Direction",
    "Expectation",
    "Flow",
    "Host",
    "Inventory",
    "InventoryError",
    "Phase",
    "PingAction",
    "Plan",
    "PlannedPath",
    "Point",
    "Queue",
    "Sample",
    "Validity",
    "describe",
    "plan",
]
