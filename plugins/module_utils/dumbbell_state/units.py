"""Units of systemd that are stopped during a run because they would disturb it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import dumbbell_baseline as baseline
from .part import Command, Host, Ledger, Owned, Part


def part(asked: Mapping[str, Any], ledger: Ledger, host: Host) -> Part:
    """The units to stop, and those that earlier runs have stopped. Units that the host lacks do not count."""
    was = {setting.subject: value for setting, value in ledger.items() if setting.kind == "unit" and value}
    wants = {**was, **dict.fromkeys(asked["quiesced"], "inactive")}

    def read() -> dict[str, str]:
        found = baseline.activities(wants, host.execute)
        return {name: value for name, value in found.items() if value}

    def pairs(found: Mapping[str, str]) -> Owned:
        return {f"unit {name}": (wants[name], value) for name, value in found.items()}

    def plan(found: Mapping[str, str]) -> list[Command]:
        return [
            ["systemctl", "start" if wants[name] == "active" else "stop", name]
            for name, value in found.items()
            if value != wants[name]
        ]

    return Part("units", read, plan, pairs, lambda found: {"units": dict(found)} if found else {})
