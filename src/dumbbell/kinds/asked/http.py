"""http: fetches over HTTP between two agents."""

from __future__ import annotations

import random
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dumbbell.kinds.asked.base import BaseFlow, CongestionControl, Kind
from dumbbell.quantities import Duration, Size


class HttpFlow(BaseFlow):
    """Fetches over HTTP by the agent itself, one after the other.

    The server is on `from` and the client on `to`: data goes from `from` to `to`, as of all kinds. The flow's
    end cuts the fetch under way. Each fetch leaves its times, and what the kernel says of its socket at both
    ends. The kernel chooses the client's ports.
    """

    kind: Literal["http"]
    size: Size = Field(description="body of each answer", examples=["76800B"])
    count: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="fetches, which must be done before the scenario's end; default: as many as there is "
        "time for",
    )
    think: Duration = Field(
        default=0, description="pause after each fetch", json_schema_extra={"default": "0s"}
    )
    connections: Literal["new", "persistent"] = Field(
        default="new", description="new: one for each fetch, ended by the server; persistent: one for all"
    )
    congestion_control: CongestionControl = Field(default="cubic", description="at both ends")

    @model_validator(mode="after")
    def _count_or_duration(self) -> Self:
        if self.count is not None and self.duration is not None:
            raise ValueError("give count or duration, not both")
        return self

    @property
    def sampled(self) -> bool:
        """The server's connections are sampled."""
        return True

    def planned(self, start_ns: int, duration_ns: int, rng: random.Random) -> dict[str, Any]:
        """The size, number and timing of the fetches."""
        return {
            "congestion_control": self.congestion_control,
            "fetch_bytes": self.size,
            "fetches": self.count,
            "think_ns": self.think,
            "persistent": self.connections == "persistent",
        }


KINDS = (
    Kind(
        "http",
        HttpFlow,
        protocols=("tcp",),
        counted_by="tcp",
        server="http_server",
        client="http_client",
        server_sends=True,
        any_client_port=True,
        writes_rows=True,
        follows_sockets=False,
    ),
)
