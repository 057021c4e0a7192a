"""udp: datagrams at a scheduled rate between two agents. Random durations are drawn by the planner."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from dumbbell.kinds.asked.base import BaseFlow, Given, Kind, PositiveDuration, Refused
from dumbbell.quantities import Period, Rate, Size, Strict

MAX_STEPS = 100_000
DEFAULT_SHAPE = 1.5


class Random(Strict):
    """Durations drawn from a distribution when the scenario is planned; give one of the three."""

    exponential: PositiveDuration | None = Field(default=None, description="mean")
    pareto: PositiveDuration | None = Field(default=None, description="mean")
    uniform: Period | None = Field(default=None, description="shortest and longest, as in 1s-3s")
    shape: Annotated[float, Field(gt=1, le=100)] | None = Field(
        default=None,
        description="of pareto: the smaller, the heavier its tail; the variance is infinite up to 2",
        json_schema_extra={"default": 1.5},
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(given is not None for given in (self.exponential, self.pareto, self.uniform)) != 1:
            raise ValueError("give one of exponential, pareto, uniform")
        if self.shape is not None and self.pareto is None:
            raise ValueError("shape belongs to pareto")
        return self


MaybeRandom = Annotated[
    Annotated[PositiveDuration, Tag("given")] | Annotated[Random, Tag("drawn")],
    Discriminator(lambda value: "drawn" if isinstance(value, dict | Random) else "given"),
]


class RatedPeriod(Strict):
    """A period with a rate of its own."""

    during: Period
    rate: Rate


AnyPeriod = Annotated[
    Annotated[Period, Tag("plain")] | Annotated[RatedPeriod, Tag("rated")],
    Discriminator(lambda value: "rated" if isinstance(value, dict | RatedPeriod) else "plain"),
]


class UdpFlow(BaseFlow):
    """UDP at a scheduled rate by the agent itself, whose receiver counts every datagram."""

    kind: Literal["udp"]
    rate: Rate = Field(description="payload, while it is active")
    datagram: Annotated[Size, Field(ge=32, le=65507)] | None = Field(
        default=None,
        description="payload of a datagram; without it 1472B over IPv4, 1452B over IPv6, which fill a packet "
        "of 1500 bytes",
    )
    active: MaybeRandom | None = Field(
        default=None, description="it sends this long, then is idle, in turns from its start on"
    )
    idle: MaybeRandom | None = Field(default=None, description="with active")
    periods: Annotated[list[AnyPeriod], Field(min_length=1)] | None = Field(
        default=None, description="when it is active, in times since t0, in place of all of these"
    )

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        if (self.active is None) != (self.idle is None):
            raise ValueError("active and idle belong together")
        if self.periods is None:
            return self
        if {"start", "duration", "active", "repeat"} & self.model_fields_set:
            raise ValueError(
                "periods say when it sends: start, duration, active, idle and repeat do not go with them"
            )
        spans = [p.during if isinstance(p, RatedPeriod) else p for p in self.periods]
        for one, other in pairwise(spans):
            if other.start < one.end:
                raise ValueError("periods follow each other in order of time")
        return self

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """From the start of the first period to the end of the last, if the flow has periods."""
        if self.periods is None:
            return None
        spans = [_rated(item, self.rate)[0] for item in self.periods]
        return spans[0].start, spans[-1].end

    def planned(self, given: Given) -> dict[str, Any]:
        """The rates since the flow's start, with the random durations drawn."""
        (_, first), *rest = self.steps(given)
        steps = [{"at_ns": at_ns, "rate_bps": rate} for at_ns, rate in rest]
        return {"rate_bps": first, "rate_steps": steps or None, "payload_bytes": self.datagram}

    def steps(self, given: Given) -> list[tuple[int, int]]:
        """The steps of the rate: bit/s, and the time it applies from, in ns since the flow's start."""
        found: list[tuple[int, int]] = []
        if self.periods is not None:
            for item in self.periods:
                period, rate = _rated(item, self.rate)
                at = period.start - given.start_ns
                if found and found[-1][0] == at:
                    found.pop()
                found += [(at, rate), (period.end - given.start_ns, 0)]
            return found[:-1]  # the last step only marks the end of the flow
        if self.active is None or self.idle is None:
            return [(0, self.rate)]
        at = 0
        while at < given.duration_ns:
            found.append((at, self.rate))
            at += _draw(self.active, given.rng)
            if at < given.duration_ns:
                found.append((at, 0))
                at += _draw(self.idle, given.rng)
            if len(found) > MAX_STEPS:
                raise Refused("active", f"it would turn on and off more than {MAX_STEPS} times")
        return found


def _rated(item: Period | RatedPeriod, rate: int) -> tuple[Period, int]:
    return (item.during, item.rate) if isinstance(item, RatedPeriod) else (item, rate)


def _draw(duration: int | Random, rng: random.Random) -> int:
    """A duration in ns, at least 1 us. It is in whole microseconds, so that every platform draws the same."""
    if isinstance(duration, int):
        return duration
    if duration.exponential is not None:
        drawn = rng.expovariate(1 / duration.exponential)
    elif duration.pareto is not None:
        shape = duration.shape or DEFAULT_SHAPE
        drawn = duration.pareto * (shape - 1) / shape * rng.paretovariate(shape)
    else:
        assert duration.uniform is not None
        drawn = rng.uniform(duration.uniform.start, duration.uniform.end)
    return max(1, round(min(drawn, 1e18) / 1000)) * 1000


KINDS = (
    Kind(
        "udp",
        UdpFlow,
        protocols=("udp",),
        counted_by="udp",
        server="udp_receive",
        client="udp_send",
        writes_rows=True,
    ),
)
