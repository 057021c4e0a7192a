"""A fact of a verdict."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Check(BaseModel):
    """One requested fact beside the measured one; ``tolerance`` is absolute, in ``unit``."""

    model_config = ConfigDict(extra="forbid")
    name: str
    kind: Literal["validity", "expect"]
    subject: str
    requested: Any
    measured: Any
    tolerance: float | None = None
    unit: str = ""
    ok: bool
    reason: str = ""
