"""What an original shows: every table, figure, excerpt and claim, from ``docs/seeds/originals``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from dumbbell.quantities import Name, Strict
from dumbbell.scenario.load import read_as

FOLDER = Path("docs/seeds/originals")
# "added" is what the original has not, and what its question or its conclusion asks for.
Kind = Literal["table", "figure", "exhibit", "claim", "added"]


class Original(Strict):
    """What the original says: words, or a table whose rows are known by their first cell."""

    text: str = ""
    head: list[str] = Field(default_factory=list)
    rows: dict[str, list[str]] = Field(default_factory=dict)


class Item(Strict):
    """One thing that is to be shown here too."""

    id: str
    kind: Kind
    where: str
    shows: str
    original: Original


class Check(Strict):
    """A number of a page, and the query on the tables of a point's run directory that gives it."""

    what: str
    item: str
    row: str
    column: str
    run: Annotated[list[str], Field(min_length=2, max_length=2)]  # scenario and profile
    point: dict[str, str]
    sql: str


class Seed(Strict):
    """An original."""

    name: Name
    title: str
    by: str
    about: str
    items: Annotated[list[Item], Field(min_length=1)]
    checks: Annotated[list[Check], Field(min_length=3)]

    def item(self, name: str) -> Item:
        """The item of this id; KeyError if there is none."""
        return {item.id: item for item in self.items}[name]


def load(folder: Path = FOLDER) -> dict[str, Seed]:
    """All originals by name; ScenarioError with everything that is wrong in a file."""
    seeds = [read_as(path, Seed)[1] for path in sorted(folder.glob("*.yml"))]
    return {seed.name: seed for seed in seeds}
