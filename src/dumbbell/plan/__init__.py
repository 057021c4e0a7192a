"""From a scenario and an inventory to ``plan.json``: hosts, actions, addresses, ports, times since t0.

``docs/data-model.md`` specifies the file. The same scenario, seed and inventory give the same bytes.
"""

from dumbbell.inventory import Inventory, InventoryError
from dumbbell.plan.actions import PingAction, Sample
from dumbbell.plan.calibration import Probe, probe_name, rate_name
from dumbbell.plan.describe import clock, describe, in_real_time, in_words
from dumbbell.plan.document import (
    Expectation,
    Flow,
    Host,
    Phase,
    Plan,
    Point,
    Validity,
    point_label,
    refuse_newer_plan,
)
from dumbbell.plan.path import (
    PACKET_BYTES,
    Conditions,
    Direction,
    PlannedPath,
    Queue,
    Way,
    change_name,
    datagram_headers_bytes,
)
from dumbbell.plan.planner import plan

__all__ = [
    "PACKET_BYTES",
    "Conditions",
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
    "Probe",
    "Queue",
    "Sample",
    "Validity",
    "Way",
    "change_name",
    "clock",
    "datagram_headers_bytes",
    "describe",
    "in_real_time",
    "in_words",
    "plan",
    "point_label",
    "probe_name",
    "rate_name",
    "refuse_newer_plan",
]
