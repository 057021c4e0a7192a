"""The events that agents may write, as declared in ``events.yml``."""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, create_model
from ruamel.yaml import YAML

from dumbbell.facts import waivers
from dumbbell.facts.documents import Document

FILE = Path(__file__).with_name("events.yml")

TYPES: dict[str, Any] = {
    "integer": int,
    "integer or null": int | None,
    "count": NonNegativeInt,
    "positive": PositiveInt,
    "boolean": bool,
    "text": str,
    "texts": list[str],
}


class Key(BaseModel):
    """One key of an event."""

    model_config = ConfigDict(extra="forbid")
    type: Literal["integer", "integer or null", "count", "positive", "boolean", "text", "texts"]
    unit: str | None = None
    optional: bool = False
    meaning: str = Field(min_length=1)


class Event(BaseModel):
    """An event: its keys (time, name and flow apart), and the check that judges it."""

    model_config = ConfigDict(extra="forbid")
    name: str
    meaning: str = Field(min_length=1)
    flow: bool = False  # it has the key flow
    distinct: tuple[str, ...] = ()  # keys that distinguish events of this name
    any_number: bool = False  # it may occur any number of times
    fault: str | None = None  # if the event is a fault: the verdict's message
    keys: dict[str, Key]
    judged: str = Field(min_length=1)

    @property
    def planned(self) -> bool:
        """Whether the plan determines how many of these events a run has."""
        return not self.any_number and self.fault is None

    @property
    def told_apart_by(self) -> tuple[str, ...]:
        """Keys that distinguish events of this name: a run has one event for each of their values."""
        return (*(("flow",) if self.flow else ()), *self.distinct)

    @cached_property
    def document(self) -> type[Document]:
        """A model with every mandatory key and its type."""
        fields: dict[str, Any] = {"unix_ns": PositiveInt, "mono_ns": PositiveInt, "event": str}
        if self.flow:
            fields["flow"] = str
        fields |= {name: TYPES[key.type] for name, key in self.keys.items() if not key.optional}
        required: dict[str, Any] = {name: (kind, ...) for name, kind in fields.items()}
        model: type[Document] = create_model(self.name, __base__=Document, **required)
        return model


@cache
def events() -> dict[str, Event]:
    """All declared events by name, in the order of the file."""
    declared = YAML(typ="safe").load(FILE)
    return {name: Event.model_validate({"name": name} | event) for name, event in declared.items()}


def table() -> str:
    """The declared events as a Markdown table, for the documentation."""
    rows = [
        f"| `{each.name}` | {each.meaning} | {_keys(each)} | {_judged(each)} |" for each in events().values()
    ]
    return "\n".join(["| event | when | keys | judged |", "|---|---|---|---|", *rows])


def _keys(event: Event) -> str:
    flow = ["`flow`"] if event.flow else []
    return "; ".join([*flow, *(_key(name, key) for name, key in event.keys.items())])


def _judged(event: Event) -> str:
    names = [name for name in event.keys if waivers.waiver(f"event {event.name}.{name}", "altered")]
    waived = [f"waived: {', '.join(f'`{name}`' for name in names)}"] if names else []
    return "; ".join([event.judged, *waived])


def _key(name: str, key: Key) -> str:
    about = [key.meaning, *([key.unit] if key.unit else []), *(["at times"] if key.optional else [])]
    return f"`{name}`: {', '.join(about)}"
