"""ethtool's settings, in groups: parse its output, compare, and make the command that sets them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Union

Value = Union[bool, int]  # noqa: UP007  Python 3.9


class Kind(NamedTuple):
    """The option of ethtool that shows a group of settings, and the word for one of them."""

    show: str
    one: str


# A new group is one line here; the option that sets it is the one that shows it, in capitals.
GROUPS = {
    "features": Kind("-k", "feature"),
    "rings": Kind("-g", "ring"),
    "coalescing": Kind("-c", "coalescing"),
    "pause": Kind("-a", "pause"),
    "channels": Kind("-l", "channels"),
}
SHOW = {name: group.show for name, group in GROUPS.items()}
SET = {option.upper(): group for group, option in SHOW.items()}

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
SHORT = {kernel: name for name, kernel in SHORT_NAMES.items()}
# Lines of `ethtool -k` that summarise the features below them.
SUMMARIES = {"tx-checksumming", "scatter-gather", "tcp-segmentation-offload"}
# Names that differ between showing and setting.
SETTING_NAMES = {"autonegotiate": "autoneg"} | {
    f"{side}-frame-{level}": f"{side}-frames-{level}" for side in ("rx", "tx") for level in ("low", "high")
}

# vector_get_ringparam() reads a queue that a tap does not have, and the kernel panics (seen with Linux 6.1).
NOT_TO_BE_READ = {("uml-vector", "rings")}

FEATURE = re.compile(r"^\s*(?P<name>[\w-]+): (?P<value>on|off)(?: \[(?P<note>[^]]+)\])?\s*$", re.MULTILINE)
PAIR = re.compile(r"^(?P<name>Adaptive|CQE mode) RX: (?P<rx>\S+)\s+TX: (?P<tx>\S+)\s*$", re.MULTILINE)
PARAMETER = re.compile(r"^(?P<name>[\w -]+):[ \t]*(?P<value>on|off|\d+|n/a)\s*$", re.MULTILINE)
DRIVER = re.compile(r"^driver: (.*)$", re.MULTILINE)


class Parameter(NamedTuple):
    """One value of a group; `fixed` if the driver does not change it, `most` if the hardware has a limit."""

    value: Value
    fixed: bool = False
    most: int | None = None


Group = dict[str, Parameter]


def parse(group: str, text: str) -> Group:
    """The settings in ethtool's output for a group, by name, without those shown as n/a."""
    if group == "features":
        return {
            line["name"]: Parameter(line["value"] == "on", line["note"] == "fixed")
            for line in FEATURE.finditer(text)
        }
    maxima, heading, current = text.partition("Current hardware settings:")
    if heading:
        most = _parameters(maxima)
        return {name: Parameter(value, most=most.get(name)) for name, value in _parameters(current).items()}
    pairs = {
        f"{pair['name'].lower().replace(' ', '-')}-{side}": pair[side]
        for pair in PAIR.finditer(text)
        for side in ("rx", "tx")
    }
    values = {name: _value(text) for name, text in pairs.items() if text != "n/a"} | _parameters(text)
    return {name: Parameter(value) for name, value in values.items() if not name.endswith("negotiated")}


def requested(text: str) -> dict[str, bool]:
    """Features that are requested but not active, because another feature that they need is off."""
    notes = {"requested on": True, "requested off": False}
    return {line["name"]: notes[line["note"]] for line in FEATURE.finditer(text) if line["note"] in notes}


def _parameters(text: str) -> dict[str, Value]:
    named = ((line["name"].lower().replace(" ", "-"), line["value"]) for line in PARAMETER.finditer(text))
    return {SETTING_NAMES.get(name, name): _value(value) for name, value in named if value != "n/a"}


def _value(text: str) -> Value:
    return int(text) if text.isdecimal() else text == "on"


def driver(text: str) -> str:
    """The driver's name in the output of `ethtool -i`; empty if it has none."""
    match = DRIVER.search(text)
    return match[1] if match else ""


def canonical(name: str, value: Any) -> Value:
    """A value of the inventory in its canonical type; ValueError if it is neither a number nor on or off."""
    text = str(value).lower()
    if text in ("on", "true", "yes"):
        return True
    if text in ("off", "false", "no"):
        return False
    if text.isdecimal():
        return int(text)
    raise ValueError(f"{name}: {value!r} is neither a number nor on or off")


def changeable(group: str, text: str) -> dict[str, Value]:
    """The values of a group that can be set, by the names that set them."""
    found = parse(group, text)
    return {name: each.value for name, each in found.items() if not each.fixed and name not in SUMMARIES}


def find(group: str, asked: Mapping[str, Value], found: Group) -> Group:
    """The requested settings by the requested names; ValueError names those that the device does not have."""
    names = {name: SHORT_NAMES.get(name, name) if group == "features" else name for name in asked}
    unknown = [name for name, full in names.items() if full not in found]
    if unknown:
        had = f"; it has {', '.join(found)}" if found and group != "features" else ""
        raise ValueError(f"no {group} {', '.join(unknown)}{had}")
    return {name: found[full] for name, full in names.items()}


def mismatches(asked: Mapping[str, Value], found: Group) -> dict[str, tuple[Value, Value]]:
    """Name to (requested, found)."""
    return {name: (value, found[name].value) for name, value in asked.items() if found[name].value != value}


def plan(device: str, group: str, asked: Mapping[str, Value], found: Group) -> list[list[str]]:
    """One command for all settings of a group that differ, so that dependent values change together.

    ValueError names settings that the driver holds fixed, and values above the hardware's limit.
    """
    wrong = mismatches(asked, found)
    refused = [f"{name} is fixed at {_word(found[name].value)}" for name in wrong if found[name].fixed]
    refused += [
        f"{name} is at most {found[name].most}, asked {asked[name]}"
        for name in wrong
        if (most := found[name].most) is not None and asked[name] > most
    ]
    if refused:
        raise ValueError(f"cannot change {group}: {', '.join(refused)}")
    words = [word for name in wrong for word in (SHORT.get(name, name), _word(asked[name]))]
    return [["ethtool", SHOW[group].upper(), device, *words]] if words else []


def _word(value: Value) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
