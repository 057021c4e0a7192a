"""When and of which run the synthetic measurements are."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
T0_UNIX_NS = {"calibration": 1_767_225_600_000_000_000, "measurement": 1_767_225_630_000_000_000}
RUN_ID = "20260101T000000Z-two_flow_fairness-synthetic"
CHANGE_LATE_NS, CHANGE_TOOK_NS = 1_000_000, 2_000_000
