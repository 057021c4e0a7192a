"""How the last provisioning left a host, and what it was made from.

The record is beside that of what the host had before, and goes with it when the host is given back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils import dumbbell_baseline as baseline
from ansible.module_utils.dumbbell_baseline import Execute, Setting

# What roles leave. Settings of the running kernel are read each time, by point_state.
KINDS = ("file", "service", "directory", "user", "package", "dkms", "tree")
FILE = "provisioned.json"
QUERY = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Abbrev}${Version}\\n"]


def record(inputs: str, packages: Sequence[str], execute: Execute, place: Path = baseline.PLACE) -> None:
    """Write down how the host is left; `inputs` is a digest of what that was made from."""
    settings = [setting for setting in baseline.load(place) if setting.kind in KINDS]
    left = _read(settings, packages, execute)
    known = [list(setting) for setting in settings]
    baseline.write(place / FILE, {"inputs": inputs, "settings": known, "left": left})


def differs(
    inputs: str, packages: Sequence[str], execute: Execute, place: Path = baseline.PLACE
) -> list[str]:
    """What is other than it was left; nothing if all is as the record says, by kind and subject."""
    try:
        was = json.loads((place / FILE).read_text())
    except (OSError, ValueError):
        return ["no provisioning of it has come to its end"]
    found = _read((Setting(*each) for each in was["settings"]), packages, execute)
    names = sorted(was["left"].keys() | found.keys())
    changed = [name for name in names if was["left"].get(name) != found.get(name)]
    return changed if was["inputs"] == inputs else ["what provisioning is made from", *changed]


def _read(settings: Iterable[Setting], packages: Sequence[str], execute: Execute) -> dict[str, Any]:
    lines = execute([*QUERY, *packages])[1].splitlines() if packages else []
    found: dict[str, Any] = {f"package {line.split()[0]}": line for line in lines}
    return found | {str(setting): baseline.read(setting, execute) for setting in settings}
