"""Kernel modules with their parameters, and the allowed congestion controls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import dumbbell_modules as modules
from .. import dumbbell_sysctl as sysctl
from ..dumbbell_baseline import Setting
from .part import Command, Ledger, Owned, Part

ALLOWED = sysctl.OF_THE_KERNEL
AVAILABLE = "net.ipv4.tcp_available_congestion_control"
CONTROL = "net.ipv4.tcp_congestion_control"


def is_as_found(name: str, ledger: Ledger) -> bool:
    """Whether a module was loaded before any run; modules that the kernel loads by itself count as such."""
    return ledger.get(Setting("module", name), True) is not None


def _own_parameters(wanted: Mapping[str, Mapping[str, str]], ledger: Ledger) -> dict[str, dict[str, str]]:
    """The original parameters of modules that were loaded before any run and are reloaded for one."""
    found = {
        setting.subject: was
        for setting, was in ledger.items()
        if setting.kind == "parameters" and was is not None and is_as_found(setting.subject, ledger)
    }
    for name, asked in wanted.items():
        if name in found or not is_as_found(name, ledger) or not (modules.SYSFS / name).exists():
            continue
        has = modules.read_loaded(name)
        differ = [key for key, value in asked.items() if modules.canonical(has.parameters.get(key)) != value]
        if has.read_only & set(differ):
            found[name] = has.parameters
    return {
        name: {
            key: str(ledger.get(Setting("sysfs", f"/sys/module/{name}/parameters/{key}"), value))
            for key, value in was.items()
            if value not in ("", "(null)")  # cannot be passed to modprobe
        }
        for name, was in found.items()
    }


def loaded(asked: Mapping[str, Any], ledger: Ledger) -> Part:
    """Modules with the requested parameters only: one that has others from an earlier run is reloaded."""
    of = asked["modules"]
    wanted: dict[str, dict[str, str]] = {
        name.replace("-", "_"): {key: modules.canonical(value) for key, value in values.items()}
        for name, values in of["loaded"].items()
    }
    for name, was in _own_parameters(wanted, ledger).items():
        wanted[name] = {**was, **wanted.get(name, {})}
    controls = list(dict.fromkeys([*of["controls"], *of["allowed"]]))
    wants = modules.Asked(wanted, controls, None, modules.read_aliases())

    def read() -> Any:
        more = {
            name: sorted(values.keys() - wanted.get(name, {}).keys())
            for name, values in modules.read_given().items()
            if name in wants.names and not is_as_found(name, ledger)
        }
        return modules.read(wants), {name: keys for name, keys in more.items() if keys}, sysctl.read(CONTROL)

    def plan(found: Any) -> list[Command]:
        have, more, default = found
        again = [name for name in more if name in have.loaded]
        commands = [command for command in modules.plan(wants, have, again) if command[0] != "sysctl"]
        # The default control is in use. reno, which every kernel has, replaces it until the sysctls are set.
        if ["modprobe", "--remove", f"tcp_{default}"] in commands:
            commands.insert(0, ["sysctl", "-w", f"{CONTROL}=reno"])
        return commands

    def owned(found: Any) -> Owned:
        have, more, _ = found
        settings: Owned = {f"module {name}": ("loaded", "loaded") for name in wants.names}
        for name, values in wanted.items():
            settings.update({f"{key} of {name}": (value, value) for key, value in values.items()})
        for name, keys in more.items():
            settings.update({f"{key} of {name}": ("as it is loaded", "of another run") for key in keys})
        for name, pair in modules.mismatches(wants, have).items():
            if name != "allowed":
                settings[f"module {name}" if name in wants.names else name] = pair
        return settings

    def refuse(found: Any, commands: list[Command]) -> None:
        if refused := list(modules.refusals(wants, found[0])):
            raise ValueError("; ".join(refused))

    return Part(
        "modules", read, plan, owned, lambda found: {"modules": modules.report(wants, found[0])}, refuse
    )


def allowed(asked: Mapping[str, Any], ledger: Ledger) -> Part:
    """Controls that any user may choose; after the default is set, which the kernel allows to everybody."""
    of = asked["modules"]
    as_found = str(ledger.get(Setting("sysctl", ALLOWED)) or "").split()
    default = asked["sysctls"].get(CONTROL) or ledger.get(Setting("sysctl", CONTROL))
    exactly = of["allowed"] or str(asked["sysctls"].get(ALLOWED) or "").split()
    wants = exactly or [*as_found, *of["controls"], *([default] if default else [])]

    def read() -> Any:
        return tuple(str(sysctl.read(name) or "").split() for name in (AVAILABLE, ALLOWED))

    def wanted(found: Any) -> list[str]:
        """Without controls that were allowed originally, but whose module is not loaded since the boot."""
        if sysctl.is_fixed(ALLOWED) and not exactly:
            return list(dict.fromkeys([*found[1], *of["controls"]]))
        return [name for name in dict.fromkeys(wants) if exactly or name in found[0]]

    def plan(found: Any) -> list[Command]:
        want = wanted(found)
        return [] if set(want) == set(found[1]) else [["sysctl", "-w", f"{ALLOWED}={' '.join(want)}"]]

    def owned(found: Any) -> Owned:
        """Sorted, because the kernel lists them in its own order."""
        want, has = wanted(found), found[1]
        return {ALLOWED: (" ".join(has if set(want) == set(has) else want), " ".join(has))}

    return Part(
        "allowed congestion controls",
        read,
        plan,
        owned,
        lambda found: {"modules": {"allowed": found[1]}, "sysctl": {ALLOWED: " ".join(found[1])}},
    )


def surplus(asked: Mapping[str, Any], ledger: Ledger) -> Part:
    """Modules with parameters of earlier runs that nobody requests; last, when nothing uses them."""
    of = asked["modules"]
    names = {name.replace("-", "_") for name in of["loaded"]}
    names |= set(modules.Asked({}, [*of["controls"], *of["allowed"]], None, modules.read_aliases()).names)

    def read() -> list[str]:
        given = [name for name in modules.read_given() if name not in names]
        return [name for name in given if not is_as_found(name, ledger) and (modules.SYSFS / name).exists()]

    return Part(
        "modules of other runs",
        read,
        lambda found: [["modprobe", "--remove", name] for name in found],
        lambda found: {f"module {name}": ("not loaded", "loaded") for name in found},
        lambda found: {},
    )
