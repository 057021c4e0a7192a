"""The base model of everything in a plan."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Part(BaseModel):
    """A model that refuses unknown keys and does not convert values."""

    model_config = ConfigDict(strict=True, extra="forbid")


def optional(default: Any = None) -> Any:
    """A key that is left out of the plan if it has no value."""
    return Field(default=default, exclude_if=lambda value: value is None)
