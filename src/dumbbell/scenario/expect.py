"""Expectations of a scenario: bounds on metrics, and tolerances between what is requested and measured."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar, Union

from pydantic import Field, create_model, model_validator

from dumbbell.metrics.registry import METRICS, Metric, compared_names
from dumbbell.quantities import Duration, Name, Period, Ratio, Strict

Model = TypeVar("Model", bound="Measurement")


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


class Measurement(Strict):
    """What is measured: a metric's flows and window, and the points that have it."""

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


class BaseExpectation(Measurement):
    """A bound on a metric: `min`, `max` or both. A valid run outside of it has failed."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        refuse_bounds(getattr(self, "min"), getattr(self, "max"))  # noqa: B009
        return self


def refuse_bounds(low: float | None, high: float | None) -> None:
    """ValueError if there is no bound, or if no value is within."""
    if low is None and high is None:
        raise ValueError("give min, max or both")
    if low is not None and high is not None and low > high:
        raise ValueError("min is above max")


def model_of(metric: Metric, base: type[Model]) -> type[Model]:
    """The model of a metric's bound, with the keys of ``base``."""
    fields: dict[str, Any] = {"metric": (Literal[metric.name], ...)}
    if metric.percentile is not None:
        described = Field(default=50, description=metric.percentile or None)
        fields["percentile"] = (Annotated[float, Field(ge=0, le=100)], described)
    fields |= {name: (metric.bound | None, None) for name in ("min", "max")}
    name = base.__name__.removeprefix("Base").removesuffix("ation") + metric.name.title().replace("_", "")
    return create_model(name, __base__=base, __doc__=metric.what, __module__=base.__module__, **fields)


MODELS = [model_of(metric, BaseExpectation) for metric in METRICS.values()]
Expectation: Any = Annotated[Union[*MODELS], Field(discriminator="metric")]

ComparedName: Any = Literal[*compared_names()]


class Primary(Strict):
    """The metric that decides an A/B of this scenario's profiles (`fab ab`); all others are exploratory."""

    metric: ComparedName = Field(description="of those that comparisons have")
    of: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="a flow, a ping, or `all flows`; default: what the metric is of, if it is one",
    )
    least: Ratio = Field(
        default=0.02,
        description="the smallest difference that matters",
        json_schema_extra={"default": "2%"},
    )
