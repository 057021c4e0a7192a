"""The complete state of a host: every setting that Dumbbell owns, and how to bring the host to it.

The value of a setting is the scenario's, or else the inventory's, or else the value before Dumbbell's first
change, which the record of `dumbbell_baseline` has. A setting that no run has changed and nobody requests is
not owned. So nothing of an earlier run is left.

A part is one kind of settings. All parts are pure functions of `Host`, which reads and caches the host's
state. Sysctls, module parameters and ethtool's settings are identified by name. Any other setting is one line
in a table: of an interface in `dumbbell_link.SIZES`, a group of ethtool in `dumbbell_ethtool.SHOW`, of a path
in `dumbbell_tc.kinds`; a file of the CPUs in `dumbbell_cpu.wanted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import dumbbell_sysctl as sysctl
from ..dumbbell_baseline import Setting
from . import files, interface, modules, path, qdisc, sysctls, units
from .modules import ALLOWED, CONTROL
from .part import Host, Ledger, Part
from .path import DIRECTIONS, with_path_commands

__all__ = ["ALWAYS", "Host", "Part", "first_contact", "merged", "parts", "with_path_commands"]

# Owned from the first contact on, even if nobody requests them.
ALWAYS = (ALLOWED, CONTROL)


def first_contact(asked: Mapping[str, Any]) -> list[Setting]:
    """Settings that are recorded before any change, because setting one sysctl may change another one."""
    known = [name for name in asked["sysctls"] if sysctl.read(name) is not None]
    return [Setting("sysctl", name) for name in (*ALWAYS, *known)] + [
        Setting(kind, device) for device in asked["interfaces"] for kind in ("link", "qdisc", "features")
    ]


def parts(asked: Mapping[str, Any], ledger: Ledger, host: Host, module: Any) -> list[Part]:
    """All parts, in the order in which they are changed; ValueError names impossible requests."""
    way = asked.get("path")
    carrying = (
        {way[side] for side in ("left", "right")} if way and (way["forward"] or way["reverse"]) else set()
    )
    # Some units change settings; the kernel's choice of qdisc depends on a sysctl.
    found = [units.part(asked, ledger, host), modules.loaded(asked, ledger), sysctls.part(asked, ledger)]
    for device, of in asked["interfaces"].items():
        found += interface.parts(device, of, ledger, host, module)
    if way:
        found += [path.part(name, way, host, module) for name in DIRECTIONS]
    found += [
        qdisc.part(device, asked, ledger, host)
        for device, of in asked["interfaces"].items()
        if of.get("qdisc") is None and device not in carrying
    ]
    return [*found, modules.allowed(asked, ledger), files.part(asked, ledger), modules.surplus(asked, ledger)]


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The reports of all parts merged, at every depth."""
    whole: dict[str, Any] = {}
    for report in reports:
        for key, value in report.items():
            if isinstance(value, Mapping) and isinstance(whole.get(key), Mapping):
                whole[key] = merged([whole[key], value])
            else:
                whole[key] = value
    return whole
