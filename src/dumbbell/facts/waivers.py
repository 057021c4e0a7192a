"""Waivers (``waivers.yml``): the parts of a run that no check judges, with the reasons."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from ruamel.yaml import YAML

FILE = Path(__file__).with_name("waivers.yml")


class Waiver(BaseModel):
    """Inputs that no check judges: their presence (``removed``) or their content (``altered``)."""

    model_config = ConfigDict(extra="forbid")
    names: list[str] = Field(min_length=1)  # shell patterns
    may_be: list[Literal["removed", "altered", "emptied", "added"]] = Field(min_length=1)
    reason: str = Field(min_length=1)


@cache
def read() -> list[Waiver]:
    """All waivers, in the order of the file."""
    return [Waiver.model_validate(each) for each in YAML(typ="safe").load(FILE)]


def waiver(name: str, how: str) -> Waiver | None:
    """The first waiver that covers an input and this kind of change, or None."""
    for each in read():
        if how in each.may_be and any(fnmatchcase(name, pattern) for pattern in each.names):
            return each
    return None


def table() -> str:
    """The waivers as a Markdown table, for the documentation."""
    rows = [
        f"| {', '.join(f'`{name}`' for name in each.names)} | {', '.join(each.may_be)} | {each.reason} |"
        for each in read()
    ]
    return "\n".join(["| input | may be | why |", "|---|---|---|", *rows])
