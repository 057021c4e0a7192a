"""What of a run is judged by no check, by name, and why: ``waivers.yml``."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from ruamel.yaml import YAML

FILE = Path(__file__).with_name("waivers.yml")


class Waiver(BaseModel):
    """Inputs that nothing judges: whether they are there (``removed``), or what they say (``altered``)."""

    model_config = ConfigDict(extra="forbid")
    names: list[str] = Field(min_length=1)  # as a shell's patterns
    may_be: list[Literal["removed", "altered", "emptied", "added"]] = Field(min_length=1)
    reason: str = Field(min_length=1)


@cache
def read() -> list[Waiver]:
    """All of them, in the order of the file."""
    return [Waiver.model_validate(each) for each in YAML(typ="safe").load(FILE)]


def waiver(name: str, how: str) -> Waiver | None:
    """That of an input, if there is one."""
    for each in read():
        if how in each.may_be and any(fnmatchcase(name, pattern) for pattern in each.names):
            return each
    return None


def table() -> str:
    """All of them for people, in Markdown."""
    rows = [
        f"| {', '.join(f'`{name}`' for name in each.names)} | {', '.join(each.may_be)} | {each.reason} |"
        for each in read()
    ]
    return "\n".join(["| input | may be | why |", "|---|---|---|", *rows])
