"""http: fetches over HTTP between two agents. Sizes and begins that are random are drawn by the planner."""

from __future__ import annotations

import math
import random
from statistics import NormalDist
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dumbbell import units
from dumbbell.kinds.asked.base import BaseFlow, CongestionControl, Given, Kind, PositiveDuration, Refused
from dumbbell.quantities import Duration, Ratio, Size, Strict

MOST_TRANSFERS = 20_000  # of a flow, in the mean: the plan lists them


class Lognormal(Strict):
    """Sizes whose logarithm has a normal distribution."""

    median: Size
    sigma: Annotated[float, Field(gt=0, le=5)] = Field(description="standard deviation of the logarithm (ln)")
    most: Size = Field(description="what would be larger has this size")

    @property
    def mean_bytes(self) -> float:
        """The mean, with what is cut."""
        cut = math.log(self.most / self.median) / self.sigma
        below = self.median * math.exp(self.sigma**2 / 2) * NormalDist().cdf(cut - self.sigma)
        return below + self.most * NormalDist().cdf(-cut)

    def draw(self, rng: random.Random) -> float:
        """A size in bytes."""
        return min(self.most, rng.lognormvariate(math.log(self.median), self.sigma))


class Pareto(Strict):
    """Sizes with a heavy tail."""

    least: Size
    shape: Annotated[float, Field(gt=0, le=100)] = Field(description="the smaller, the heavier the tail")
    most: Size = Field(description="what would be larger has this size")

    @model_validator(mode="after")
    def _room(self) -> Self:
        if self.most <= self.least:
            raise ValueError("most has to be more than least")
        return self

    @property
    def mean_bytes(self) -> float:
        """The mean, with what is cut."""
        ratio, other = self.most / self.least, 1 - self.shape
        return self.least * (1 + (math.expm1(other * math.log(ratio)) / other if other else math.log(ratio)))

    def draw(self, rng: random.Random) -> float:
        """A size in bytes."""
        # The logarithm, because a small shape makes values that no float holds.
        return self.least * math.exp(min(math.log(self.most / self.least), rng.expovariate(self.shape)))


class Sizes(Strict):
    """What sizes are drawn from; give one of the three."""

    lognormal: Lognormal | None = None
    pareto: Pareto | None = None
    weighted: dict[Size, Annotated[float, Field(gt=0)]] | None = Field(
        default=None,
        min_length=1,
        description="sizes, each with its weight: how often it is drawn, beside the others",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(given is not None for given in (self.lognormal, self.pareto, self.weighted)) != 1:
            raise ValueError("give one of lognormal, pareto, weighted")
        return self

    @property
    def mean_bytes(self) -> float:
        """The mean of what is drawn."""
        if self.weighted is not None:
            return sum(s * w for s, w in self.weighted.items()) / sum(self.weighted.values())
        drawn = self.lognormal or self.pareto
        assert drawn is not None
        return drawn.mean_bytes

    def draw(self, rng: random.Random) -> int:
        """A size in whole bytes."""
        if self.weighted is not None:
            return rng.choices(list(self.weighted), list(self.weighted.values()))[0]
        drawn = self.lognormal or self.pareto
        assert drawn is not None
        return max(1, round(drawn.draw(rng)))


class Transfers(Strict):
    """Transfers whose sizes and begins are drawn, each over a connection of its own.

    The first begins at the flow's start, the others after it at random times (Poisson), whether or not those
    before them are done. All levels of the matrix meet the same sizes, in the same order.
    """

    sizes: Sizes
    per_second: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="how many begin in a second, in the mean"
    )
    load: Annotated[Ratio, Field(gt=0)] | None = Field(
        default=None,
        description="in place of per_second: their bytes in the mean, over the rate of the bottleneck at the "
        "flow's start",
    )
    within: PositiveDuration | None = Field(
        default=None,
        description="the part of the flow's time in which they begin; default: all of it, so that the last "
        "ones are cut at its end",
    )

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if (self.per_second is None) == (self.load is None):
            raise ValueError("give per_second or load")
        return self

    def drawn(self, given: Given) -> list[dict[str, int]]:
        """The begin, in ns since the flow's start, and the bytes of each, in order of time.

        Begins are whole microseconds, so that every platform draws the same.
        """
        within_ns = self.within or given.duration_ns
        if within_ns > given.duration_ns:
            within, lasts = map(units.render_duration, (within_ns, given.duration_ns))
            raise Refused("transfers", f"they begin within {within}, and the flow lasts {lasts}")
        per_second = self.per_second
        if per_second is None:
            if not given.bottleneck_bps:
                reason = "load is a share of the bottleneck's rate at the flow's start, and there is none"
                raise Refused("transfers", f"{reason}: give per_second")
            assert self.load is not None
            per_second = self.load * given.bottleneck_bps / 8 / self.sizes.mean_bytes
        if (count := per_second * within_ns / 1e9) > MOST_TRANSFERS:
            raise Refused("transfers", f"about {count:.0f} would begin: at most {MOST_TRANSFERS} may")
        at_ns = 0
        found = []
        while at_ns < within_ns:
            found.append({"at_ns": at_ns, "bytes": self.sizes.draw(given.rng)})
            at_ns += 1000 * max(1, round(1e6 * given.rng.expovariate(per_second)))
        return found


class HttpFlow(BaseFlow):
    """Fetches over HTTP by the agent itself: of one size, one after the other, or drawn.

    The server is on `from` and the client on `to`: data goes from `from` to `to`, as of all kinds. The flow's
    end cuts the fetches under way. Each fetch leaves its times, and what the kernel says of its socket at
    both ends. The kernel chooses the client's ports.
    """

    kind: Literal["http"]
    size: Size | None = Field(
        default=None, description="body of each answer; required without transfers", examples=["76800B"]
    )
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
    transfers: Transfers | None = Field(
        default=None, description="drawn, in place of size, count, think and connections"
    )
    congestion_control: CongestionControl = Field(default="cubic", description="at both ends")

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        if self.count is not None and self.duration is not None:
            raise ValueError("give count or duration, not both")
        in_turn = self.model_fields_set & {"size", "count", "think", "connections"}
        if self.transfers is not None and in_turn:
            raise ValueError(f"transfers are drawn: {', '.join(sorted(in_turn))} does not go with them")
        if self.transfers is None and self.size is None:
            raise ValueError("give size, or transfers")
        return self

    @property
    def sampled(self) -> bool:
        """The server's connections are sampled."""
        return True

    def planned(self, given: Given) -> dict[str, Any]:
        """The size, number and timing of the fetches."""
        own: dict[str, Any] = {"congestion_control": self.congestion_control}
        if self.transfers is not None:
            return own | {"transfers": self.transfers.drawn(given)}
        return own | {
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
