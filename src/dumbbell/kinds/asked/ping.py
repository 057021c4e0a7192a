"""ping: echo requests, which measure the round-trip time beside other flows. They are planned as actions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dumbbell.kinds.asked.base import BaseFlow, Kind
from dumbbell.quantities import Duration


class PingFlow(BaseFlow):
    """Echo requests by ping: the round-trip time while other flows run."""

    kind: Literal["ping"]
    interval: Annotated[Duration, Field(ge=2_000_000)] = Field(
        default=100_000_000, description="between two requests", json_schema_extra={"default": "100ms"}
    )

    @property
    def why_no_delay(self) -> str:
        """Echo requests have no ports."""
        return "a ping has no port by which the router could tell it from others"


KINDS = (Kind("ping", PingFlow, protocols=(), counted_by=None),)
