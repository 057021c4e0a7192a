"""The base of everything that is written into a plan."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Nothing unknown, nothing converted silently."""

    model_config = ConfigDict(strict=True, extra="forbid")
