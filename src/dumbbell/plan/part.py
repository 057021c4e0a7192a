"""The base of everything that is written into a plan."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Part(BaseModel):
    """Nothing unknown, nothing converted silently."""

    model_config = ConfigDict(strict=True, extra="forbid")


def optional(default: Any = None) -> Any:
    """A key that is left out of the plan where the scenario says nothing."""
    return Field(default=default, exclude_if=lambda value: value is None)
