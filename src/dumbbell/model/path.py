"""What a scenario says of the path: rate, delay, loss and queue of each direction."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from dumbbell.model.quantities import Delay, QueueLimit, Rate, Ratio, Strict

QueueKind = Literal["pfifo", "bfifo", "codel", "fq_codel", "cake", "pie", "red"]
LIMIT_UNIT = {
    kind: "bytes" if kind in {"bfifo", "cake", "red"} else "packets" for kind in get_args(QueueKind)
}
NEED_LIMIT = ("pfifo", "bfifo", "red")
OPTIONS = {
    "ecn": ("codel", "fq_codel", "pie", "red"),
    "target": ("codel", "fq_codel", "pie"),
    "interval": ("codel", "fq_codel"),
}


class Queue(Strict):
    """Queue of a bottleneck."""

    kind: QueueKind
    limit: QueueLimit | None = Field(
        default=None,
        description="pfifo, codel, fq_codel, pie: packets or bdp; bfifo, cake, red: bytes or bdp. 1bdp is "
        "rate x RTT, packets of 1514 bytes. Required for pfifo, bfifo and red, else the kernel's own.",
    )
    ecn: bool | None = Field(default=None, description="mark instead of drop; default: the kernel's own")
    target: Delay | None = Field(default=None, description="queueing delay that an AQM tolerates")
    interval: Delay | None = Field(default=None, description="time that a codel tolerates more")

    @model_validator(mode="after")
    def _fits_kind(self) -> Self:
        own = LIMIT_UNIT[self.kind]
        if self.limit is None and self.kind in NEED_LIMIT:
            raise ValueError(f"a {self.kind} needs a limit")
        if self.limit is not None and self.limit.unit not in (own, "bdp"):
            raise ValueError(f"a {self.kind} is limited in {own} or bdp, not in {self.limit.unit}")
        for option, kinds in OPTIONS.items():
            if getattr(self, option) is not None and self.kind not in kinds:
                raise ValueError(f"a {self.kind} has no {option}; {', '.join(kinds)} have")
        return self


class GilbertElliott(Strict):
    """Loss in bursts by a chain of two states; probabilities for each packet."""

    p: Ratio = Field(description="of going from the good to the bad state")
    r: Ratio = Field(description="of going back")
    loss_bad: Ratio = Field(default=1.0, json_schema_extra={"default": "100%"})
    loss_good: Ratio = Field(default=0.0, json_schema_extra={"default": "0%"})


class Direction(Strict):
    """One direction of the path: bottleneck first, then delay and loss."""

    rate: Rate = Field(description="rate of the bottleneck, counted on Ethernet frames")
    delay: Delay = Field(description="one-way delay added by the router")
    loss: Ratio = Field(
        default=0.0, description="share of packets lost at random", json_schema_extra={"default": "0%"}
    )
    loss_gemodel: GilbertElliott | None = None
    jitter: Delay | None = Field(default=None, description="standard deviation, or half the range, of delays")
    distribution: Literal["normal", "pareto", "paretonormal"] | None = Field(
        default=None, description="of delays; default: uniform"
    )
    keep_order: bool | None = Field(default=None, description="no packet overtakes another through jitter")
    duplicate: Ratio | None = Field(default=None, description="share of packets sent twice")
    corrupt: Ratio | None = Field(default=None, description="share of packets with a wrong bit")
    reorder: Ratio | None = Field(default=None, description="share of packets sent without delay")
    queue: Queue

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.loss and self.loss_gemodel:
            raise ValueError("loss and loss_gemodel are models of the same loss: give one")
        if not self.delay and (self.jitter or self.reorder):
            raise ValueError("jitter and reorder have no effect without delay")
        if self.distribution and not self.jitter:
            raise ValueError("distribution has no effect without jitter")
        if self.keep_order and self.reorder:
            raise ValueError("reorder and keep_order contradict each other")
        return self


class NetworkPath(Strict):
    """What the router is asked to be."""

    forward: Direction
    reverse: Direction | None = Field(default=None, description="default: as forward")
