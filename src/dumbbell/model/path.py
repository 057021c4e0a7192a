"""What a scenario says of the path: rate, delay, loss and queue of each direction."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dumbbell.model.quantities import Delay, QueueLimit, Rate, Ratio, Strict


class Queue(Strict):
    """Queue of a bottleneck."""

    kind: Literal["pfifo", "bfifo"]
    limit: QueueLimit = Field(
        description="pfifo: packets or bdp; bfifo: bytes or bdp. 1bdp is rate x RTT, packets of 1514 bytes."
    )

    @model_validator(mode="after")
    def _limit_fits_kind(self) -> Self:
        own: str = {"pfifo": "packets", "bfifo": "bytes"}[self.kind]
        if self.limit.unit not in (own, "bdp"):
            raise ValueError(f"a {self.kind} is limited in {own} or bdp, not in {self.limit.unit}")
        return self


class Direction(Strict):
    """One direction of the path: bottleneck first, then delay and loss."""

    rate: Rate = Field(description="rate of the bottleneck, counted on Ethernet frames")
    delay: Delay = Field(description="one-way delay added by the router")
    loss: Ratio = Field(
        default=0.0, description="share of packets lost at random", json_schema_extra={"default": "0%"}
    )
    queue: Queue


class NetworkPath(Strict):
    """What the router is asked to be."""

    forward: Direction
    reverse: Direction | None = Field(default=None, description="default: as forward")
