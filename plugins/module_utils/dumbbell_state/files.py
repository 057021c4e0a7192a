"""Settings that are files below /sys and /proc."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import dumbbell_cpu as cpu
from .. import dumbbell_modules as modules
from .modules import is_as_found
from .part import Ledger, Owned, Part


def part(asked: Mapping[str, Any], ledger: Ledger) -> Part:
    """Governors, idle states and affinities, and parameters of modules that no run loads."""
    of = asked["cpu"]
    irq_cpus = dict.fromkeys(asked["interfaces"], of["irq_cpus"]) if of["irq_cpus"] is not None else {}
    wants = cpu.wanted(of["governor"], of["idle_latency_max_us"], irq_cpus)
    set_by_module = {
        str(modules.SYSFS / name.replace("-", "_") / "parameters" / key)
        for name, values in asked["modules"]["loaded"].items()
        for key in values
    }
    # After a boot, other devices may have these interrupt numbers.
    interrupts = {file for device in asked["interfaces"] for file in cpu.affinities(device)}
    was = {
        setting.subject: value
        for setting, value in ledger.items()
        if setting.kind == "sysfs"
        and value is not None
        and setting.subject not in set_by_module
        and (setting.subject in interrupts or not setting.subject.endswith("smp_affinity_list"))
        and not _is_of_a_run(setting.subject, ledger)
    }

    def read() -> dict[str, str]:
        return dict(cpu.read(file for file in {**was, **wants} if Path(file).exists()))

    def wanted(found: Mapping[str, str]) -> dict[str, str]:
        return {file: {**was, **wants}[file] for file in found}

    def owned(found: Mapping[str, str]) -> Owned:
        wrong = cpu.mismatches(wanted(found), dict(found))
        settings: Owned = {file: (value, value) for file, value in wanted(found).items()}
        return {**settings, **wrong}

    return Part(
        "files",
        read,
        lambda found: cpu.plan(wanted(found), dict(found)),
        owned,
        lambda found: {"cpu": dict(found)},
    )


def _is_of_a_run(file: str, ledger: Ledger) -> bool:
    """Whether it is a parameter of a module that a run loaded: its recorded value is that run's."""
    parts = Path(file).parts
    return parts[1:3] == ("sys", "module") and not is_as_found(parts[3], ledger)
