"""A copy of a scenario with other seeds: more repetitions of what it asks for, without touching its file."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

from dumbbell.scenario.load import load
from dumbbell.scenario.tree import read


def seeded(scenario: Path, profile: str | None, repetitions: int, folder: Path, later: int = 0) -> Path:
    """Write the scenario of a profile with so many repetitions, below ``folder``; its path.

    ``later`` is added to its seed. ScenarioError if there is something wrong in the scenario.
    """
    load(scenario, profile)
    tree = read(scenario)
    for name in profile.split(",") if profile is not None else ():
        tree = tree.merged(("profiles", name))
    value = {key: of for key, of in tree.value.items() if key != "profiles"}
    value |= {"seed": value.get("seed", 1) + later, "repetitions": repetitions}
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / f"{value['name']}.yml"
    with copy.open("w") as file:
        YAML(typ="safe").dump(value, file)
    return copy
