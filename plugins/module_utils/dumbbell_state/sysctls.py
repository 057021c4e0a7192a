"""Sysctls, except those that only the part for modules can set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import dumbbell_modules as modules
from .. import dumbbell_sysctl as sysctl
from .modules import ALLOWED
from .part import Command, Ledger, Owned, Part


def part(asked: Mapping[str, Any], ledger: Ledger) -> Part:
    """The requested sysctls, and the original values of those that any run has set."""
    was = {
        setting.subject: value
        for setting, value in ledger.items()
        if setting.kind == "sysctl" and value is not None and setting.subject != ALLOWED
    }
    wants = {name: sysctl.canonical(value) for name, value in asked["sysctls"].items() if name != ALLOWED}

    def read() -> dict[str, str | None]:
        found = {name: sysctl.read(name) for name in sorted({**was, **wants})}
        return {name: value for name, value in found.items() if value is not None or name in wants}

    def pairs(found: Mapping[str, str | None]) -> Owned:
        return {name: ({**was, **wants}[name], value) for name, value in found.items()}

    def plan(found: Mapping[str, str | None]) -> list[Command]:
        differ = {name: want for name, (want, value) in pairs(found).items() if want != value}
        return [["sysctl", "-w", f"{name}={want}"] for name, want in differ.items()]

    def refuse(found: Mapping[str, str | None], commands: list[Command]) -> None:
        lacking = [name for name, value in found.items() if value is None]
        loads = [name for name in asked["modules"]["loaded"] if not (modules.SYSFS / name).exists()]
        if lacking and not loads:  # a module may provide it
            raise ValueError(f"this kernel has no sysctl {', '.join(lacking)}")

    return Part("sysctls", read, plan, pairs, lambda found: {"sysctl": dict(found)}, refuse)
