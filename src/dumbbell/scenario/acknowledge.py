"""Warnings of plans that a scenario may acknowledge. ``docs/warnings.md`` explains each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

WarningId = Literal[
    "no_data",
    "super_packets",
    "order_kept",
    "jitter_reorders",
    "policer_burst",
    "burst_above_queue",
    "queue_far_from_bdp",
    "buffer_below_bdp",
    "udp_above_rate",
    "outage_overflows",
    "sampling_slow",
    "few_repetitions",
]
Reason = Annotated[str, Field(pattern=r"\S")]
