"""What a scenario says of its results: bounds on metrics, and how far a run may be from what was asked."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dumbbell.quantities import Duration, Name, Period, Rate, Ratio, Strict


class Validity(Strict):
    """How far a run may be from what was asked before it counts as invalid."""

    rtt_tolerance: Ratio = Field(
        default=0.02, description="of the idle path's RTT", json_schema_extra={"default": "2%"}
    )
    rtt_wait: Duration = Field(
        default=2_000_000,
        description="that busy hosts add to the idle path's RTT in the median",
        json_schema_extra={"default": "2ms"},
    )
    rate_tolerance: Ratio = Field(
        default=0.05,
        description="of the rate at which the bottleneck serves its queue",
        json_schema_extra={"default": "5%"},
    )
    arrival_tolerance: Ratio = Field(
        default=0.15,
        description="of the bottleneck's rate, as it arrives: less where hosts wait for a core",
        json_schema_extra={"default": "15%"},
    )
    clock_offset: Duration = Field(
        default=1_000_000, description="of a host's clock", json_schema_extra={"default": "1ms"}
    )
    start_error: Duration = Field(
        default=50_000_000,
        description="of a flow's first data, and of a change of the path, against the planned time",
        json_schema_extra={"default": "50ms"},
    )
    unexpected_drops: Ratio = Field(
        default=0.0,
        description="of the packets of a delay line, where no loss was asked for, and of segments and ACKs "
        "at the sockets of atou",
        json_schema_extra={"default": "0%"},
    )
    missed_samples: Ratio = Field(
        default=0.05,
        description="of a host's samples, and of the records of its trace",
        json_schema_extra={"default": "5%"},
    )
    cpu_saturated: Ratio = Field(
        default=0.1,
        description="of the measurement's time, in which a core of a host had less than 1 % left",
        json_schema_extra={"default": "10%"},
    )
    ping_replies: Ratio = Field(
        default=0.75,
        description="least share of a ping's replies, of those that asked loss leaves; full queues drop some",
        json_schema_extra={"default": "75%"},
    )


class BaseExpectation(Strict):
    """A bound on a metric: `min`, `max` or both. A valid run outside of it has failed."""

    flows: Annotated[list[Name], Field(min_length=1)] | None = Field(
        default=None, description="default: all flows of which the metric is known"
    )
    window: Period | None = Field(
        default=None,
        description="default: after the warm-up, while each flow runs; of utilisation and jain_index while "
        "all of them run",
    )
    when: dict[str, Any] = Field(
        default={},
        description="only in points with these values of the matrix, or with this baseline; "
        "without a word of it, an expectation is not about baselines",
    )

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        low, high = getattr(self, "min"), getattr(self, "max")  # noqa: B009
        if low is None and high is None:
            raise ValueError("give min, max or both")
        if low is not None and high is not None and low > high:
            raise ValueError("min is above max")
        return self


class ExpectUtilisation(BaseExpectation):
    """Sum of the flows' goodputs over the bottleneck's rate, of flows of one direction.

    With full packets at most 95.6 %.
    """

    metric: Literal["utilisation"]
    min: Ratio | None = None
    max: Ratio | None = None


class ExpectJainIndex(BaseExpectation):
    """Jain's index of the goodputs of flows of one direction: 1 is an equal share, 1/n is one of n alone."""

    metric: Literal["jain_index"]
    min: Annotated[float, Field(ge=0, le=1)] | None = None
    max: Annotated[float, Field(ge=0, le=1)] | None = None


class ExpectGoodput(BaseExpectation):
    """Payload delivered per second, of each flow.

    By default from its start to its end, which is the end of its transfer if it has an amount to transfer. In
    the part of a given window in which it does not run it delivers nothing.
    """

    metric: Literal["goodput"]
    min: Rate | None = None
    max: Rate | None = None


class ExpectRetransmits(BaseExpectation):
    """Segments sent again over data segments sent, of each TCP flow."""

    metric: Literal["retransmits"]
    min: Ratio | None = None
    max: Ratio | None = None


class ExpectTimeInRecovery(BaseExpectation):
    """Share of samples in which a connection is in the states Recovery or Loss, of each TCP flow."""

    metric: Literal["time_in_recovery"]
    min: Ratio | None = None
    max: Ratio | None = None


class ExpectRtt(BaseExpectation):
    """A percentile of the round-trip time, of each flow: of TCP its smoothed RTT, of ping its replies."""

    metric: Literal["rtt"]
    percentile: Annotated[float, Field(ge=0, le=100)] = 50
    min: Duration | None = None
    max: Duration | None = None


class ExpectCompletionTime(BaseExpectation):
    """How long a transfer takes, of each flow of kind http: from the begin of a fetch to its last byte.

    Of fetches it is a percentile over those that begin in the window, each from its begin, with connecting,
    to the last byte.
    """

    metric: Literal["completion_time"]
    percentile: Annotated[float, Field(ge=0, le=100)] = Field(default=50, description="of fetches")
    min: Duration | None = None
    max: Duration | None = None


Expectation = Annotated[
    ExpectUtilisation
    | ExpectJainIndex
    | ExpectGoodput
    | ExpectRetransmits
    | ExpectTimeInRecovery
    | ExpectRtt
    | ExpectCompletionTime,
    Field(discriminator="metric"),
]
Metric = Literal[
    "utilisation", "jain_index", "goodput", "retransmits", "time_in_recovery", "rtt", "completion_time"
]
