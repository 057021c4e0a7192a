"""Measures the offset of a host's clock from the clock that it follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

TRACKING_FIELDS = 14  # of `chronyc -c tracking`: chronyc(1)
# Options of a clock, as the modules take them.
SPEC = {
    "server": {"type": "str", "required": True},
    "source": {"type": "str", "required": True},
    "offset_max_ns": {"type": "int", "required": True},
    "root_dispersion_max_ns": {"type": "int", "required": True},
    "timeout_s": {"type": "int", "required": True},
    "cmdline": {"type": "str", "required": True},
}

Clock = dict[str, Any]


def read(
    asked: Mapping[str, Any], wait_s: float, execute: Callable[[list[str]], tuple[int, str, str]]
) -> Clock:
    """The clock once it is synchronised, or its last state after `wait_s` seconds."""
    about = {"server": asked["server"], "source": asked["source"]}
    if asked["source"] == "shared":
        # Hosts of one kernel share its clock. Each world has its own text on the kernel's command line.
        same = Path("/proc/cmdline").read_text().strip() == asked["cmdline"].strip()
        return {"synchronised": same, "offset_ns": 0, "root_dispersion_ns": 0, **about}
    until = time.monotonic() + wait_s
    while True:
        fields = execute(["chronyc", "-c", "tracking"])[1].strip().split(",")
        found = {"synchronised": False, "offset_ns": None, "root_dispersion_ns": None, **about}
        if len(fields) >= TRACKING_FIELDS:
            found |= {
                "synchronised": fields[13] == "Normal",
                "offset_ns": int(float(fields[4]) * 1e9),
                "root_dispersion_ns": int(float(fields[11]) * 1e9),
            }
        if follows(found, asked) or time.monotonic() >= until:
            return found
        time.sleep(1)


def follows(found: Clock, asked: Mapping[str, Any]) -> bool:
    """Whether the clock is within the requested limits."""
    if asked["source"] == "shared" or not found["synchronised"]:
        return bool(found["synchronised"])
    return bool(
        abs(found["offset_ns"]) < asked["offset_max_ns"]
        and found["root_dispersion_ns"] < asked["root_dispersion_max_ns"]
    )
