"""Quantities and names as fields of models, each with its pattern for the JSON Schema."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from dumbbell import units

FASTEST_BPS = 1_600_000_000_000  # of an Ethernet port, IEEE P802.3dj
BOOLEANS = ("yes", "no", "on", "off", "true", "false")  # of YAML 1.1: texts to us, and likely not meant so


class Strict(BaseModel):
    """Nothing unknown, nothing converted silently, nothing changed afterwards."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _text(pattern: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


def _whole_us(ns: int) -> int:
    if ns % 1000:
        raise ValueError("a path delay is a whole number of microseconds")
    return ns


def _possible(bps: int) -> int:
    if bps > FASTEST_BPS:
        fastest = units.render_rate(FASTEST_BPS)
        raise ValueError(f"{units.render_rate(bps)} is more than any NIC can send: at most {fastest}")
    return bps


def _no_boolean(name: str) -> str:
    if name.lower() in BOOLEANS:
        raise ValueError(f"{name!r} is a boolean of YAML, not a name")
    return name


NoBoolean = AfterValidator(_no_boolean)
Rate = Annotated[
    int,
    BeforeValidator(units.parse_rate),
    Field(gt=0),
    AfterValidator(_possible),
    _text(units.pattern(units.RATE_BPS), "100mbit"),
]
RateOrNone = Annotated[
    int,
    BeforeValidator(units.parse_rate),
    AfterValidator(_possible),
    _text(units.pattern(units.RATE_BPS), "100mbit"),
]
Duration = Annotated[int, BeforeValidator(units.parse_duration), _text(units.pattern(units.TIME_NS), "30s")]
Delay = Annotated[Duration, AfterValidator(_whole_us)]
Period = Annotated[units.Period, BeforeValidator(units.parse_period), _text(rf"^{units.PERIOD}$", "10s-20s")]
Ratio = Annotated[float, BeforeValidator(units.parse_ratio), _text(rf"^{units.NUMBER}%$", "1%")]
Size = Annotated[
    int, BeforeValidator(units.parse_size), Field(gt=0), _text(units.pattern(units.SIZE_BYTES), "64kB")
]
QueueLimit = Annotated[
    units.Limit, BeforeValidator(units.parse_limit), _text(units.pattern(units.LIMIT_UNITS), "1bdp")
]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=40), NoBoolean]
Endpoint = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_.-]+(\[[0-9]{1,4}\])?$",
        examples=["senders[0]", "sender1"],
        description="a host, GROUP[INDEX], or a role",
    ),
    NoBoolean,
]
