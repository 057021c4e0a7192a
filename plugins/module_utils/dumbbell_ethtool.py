"""Offload features: parse `ethtool -k`, compare, and render `ethtool -K`."""

from __future__ import annotations

import re
from typing import NamedTuple

# ethtool's short names for groups of kernel features (off_flag_def in its source), as -K takes them.
SHORT_NAMES = {
    "rx": "rx-checksumming",
    "tx": "tx-checksumming",
    "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "rxvlan": "rx-vlan-offload",
    "txvlan": "tx-vlan-offload",
    "ntuple": "ntuple-filters",
    "rxhash": "receive-hashing",
}
LINE = re.compile(r"^\s*(?P<name>[\w-]+): (?P<value>on|off)(?: \[(?P<note>[^]]+)\])?\s*$", re.MULTILINE)


class Feature(NamedTuple):
    """One line of `ethtool -k`."""

    on: bool
    fixed: bool


def parse(text: str) -> dict[str, Feature]:
    """Kernel's feature names to their values."""
    return {
        line["name"]: Feature(line["value"] == "on", line["note"] == "fixed") for line in LINE.finditer(text)
    }


def find(asked: dict[str, bool], features: dict[str, Feature]) -> dict[str, Feature]:
    """The features asked for under the names they were asked by; ValueError names one that does not exist."""
    unknown = [name for name in asked if SHORT_NAMES.get(name, name) not in features]
    if unknown:
        raise ValueError(f"no such feature: {', '.join(unknown)}")
    return {name: features[SHORT_NAMES.get(name, name)] for name in asked}


def mismatches(asked: dict[str, bool], found: dict[str, Feature]) -> dict[str, tuple[bool, bool]]:
    """Name to (asked, found)."""
    return {name: (on, found[name].on) for name, on in asked.items() if found[name].on != on}


def plan(device: str, asked: dict[str, bool], found: dict[str, Feature]) -> list[list[str]]:
    """One `ethtool -K` for all that differs, so that features which depend on each other change together.

    ValueError names features that the driver holds fixed at another value.
    """
    wrong = mismatches(asked, found)
    fixed = [f"{name} is fixed {'on' if found[name].on else 'off'}" for name in wrong if found[name].fixed]
    if fixed:
        raise ValueError(f"{device} cannot change: {', '.join(fixed)}")
    short = {kernel: name for name, kernel in SHORT_NAMES.items()}
    settings = [word for name in wrong for word in (short.get(name, name), "on" if asked[name] else "off")]
    return [["ethtool", "-K", device, *settings]] if settings else []
