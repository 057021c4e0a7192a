"""Quantities with units, as scenario files write them: ``100mbit``, ``20ms``, ``1bdp``, ``1%``.

Parsing is strict: a number, directly followed by one known unit, and an exact whole number of the base unit.
Each ``render_*`` writes the shortest text that its ``parse_*`` reads back as the same value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

# tc's own spelling for rates; SI for times; bytes are written B to keep them apart from bits.
RATE_BPS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
TIME_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
SIZE_BYTES = {
    **{"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
}

# Largest packets of interfaces, without the link's own header: what may be asked, and what is if nobody asks.
LEAST_MTU_BYTES, MOST_MTU_BYTES = 576, 9216
MTU_BYTES = 1500

NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_QUANTITY = re.compile(rf"({NUMBER})([A-Za-z%]+)")
_DIGITS = 400  # what a float may have
_MOST = 10**18  # of the base unit: times, rates and sizes are kept in 64 bits


def pattern(units: Mapping[str, object]) -> str:
    """Regular expression (ECMA 262, for JSON Schema) of a quantity in one of these units."""
    return rf"^{NUMBER}({'|'.join(units)})$"


def _split(text: object, what: str, units: Mapping[str, object], example: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in units:
        raise ValueError(
            f"{text!r} is not {what}: write a number and one of {', '.join(units)}, as in {example}"
        )
    if len(match[1]) > _DIGITS:
        raise ValueError(f"{text!r} has more than {_DIGITS} digits")
    return Decimal(match[1]), match[2]


def _parse(text: object, what: str, units: Mapping[str, int], example: str) -> int:
    number, unit = _split(text, what, units, example)
    base = number * units[unit]
    if base > _MOST:
        raise ValueError(f"{text!r} is more than {what} can be")
    if base != base.to_integral_value():
        raise ValueError(f"{text!r} is finer than {what} can be: the smallest step is 1{next(iter(units))}")
    return int(base)


def scale(factor: Decimal, text: str) -> str:
    """A quantity times a number: ``0.5`` times ``3mbit`` is ``1.5mbit``. ValueError if it is no quantity."""
    match = re.fullmatch(rf"({NUMBER})([A-Za-z%]*)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    return f"{(factor * Decimal(match[1])).normalize():f}{match[2]}"


def _render(value: int, units: Mapping[str, int]) -> str:
    unit, scale = max(((u, s) for u, s in units.items() if value % s == 0), key=lambda item: item[1])
    return f"{value // scale}{unit}" if value else f"0{next(iter(units))}"


def parse_rate(text: object) -> int:
    """Bits per second of a rate such as ``100mbit``."""
    return _parse(text, "a rate", RATE_BPS, "100mbit")


def render_rate(bps: int) -> str:
    """``100000000`` as ``100mbit``."""
    return _render(bps, RATE_BPS)


def parse_duration(text: object) -> int:
    """Nanoseconds of a duration such as ``20ms``."""
    return _parse(text, "a duration", TIME_NS, "20ms")


def render_duration(ns: int) -> str:
    """``20000000`` as ``20ms``."""
    return _render(ns, TIME_NS)


def parse_size(text: object) -> int:
    """Bytes of a size such as ``64kB``."""
    return _parse(text, "a size", SIZE_BYTES, "64kB")


@dataclass(frozen=True)
class Period:
    """A stretch of time, in nanoseconds since t0."""

    start: int
    end: int


PERIOD = rf"{NUMBER}({'|'.join(TIME_NS)})-{NUMBER}({'|'.join(TIME_NS)})"


def parse_period(text: object) -> Period:
    """Start and end of a period such as ``10s-20s``."""
    start, dash, end = text.partition("-") if isinstance(text, str) else ("", "", "")
    if not dash:
        raise ValueError(f"{text!r} is not a period: write two times since t0, as in 10s-20s")
    period = Period(parse_duration(start), parse_duration(end))
    if period.start >= period.end:
        raise ValueError(f"{text!r} ends before it begins")
    return period


def parse_ratio(text: object) -> float:
    """Share between 0 and 1 of a percentage such as ``1%``."""
    number, _ = _split(text, "a share", {"%": 100}, "1%")
    if number > 100:  # noqa: PLR2004
        raise ValueError(f"{text!r} is more than 100%")
    return float(number / 100)


# Units of quantities, and the name of the unit in which :func:`quantity` gives the value.
_DIMENSIONS: tuple[tuple[Mapping[str, int], str], ...] = (
    (RATE_BPS, "bps"),
    (TIME_NS, "ns"),
    (SIZE_BYTES, "bytes"),
    ({"%": 1}, "%"),
    ({"bdp": 1}, "BDP"),
    ({"packets": 1}, "packets"),
)


def quantity(text: str) -> tuple[float, str] | None:
    """Value and base unit of a quantity: ``20ms`` is 2e7 ``ns``, ``2bdp`` 2 ``BDP``, ``4`` 4 without a unit.

    None if the text is none.
    """
    if re.fullmatch(NUMBER, text):
        return float(text), ""
    if match := _QUANTITY.fullmatch(text):
        for units, base in _DIMENSIONS:
            if match[2] in units:
                return float(Decimal(match[1]) * units[match[2]]), base
    return None


@dataclass(frozen=True)
class Limit:
    """Length of a queue: a number of packets, of bytes, or of bandwidth-delay products."""

    amount: Decimal
    unit: Literal["packets", "bytes", "bdp"]


LIMIT_UNITS = {"packets": 1, "bdp": 1} | SIZE_BYTES


def parse_limit(text: object) -> Limit:
    """Limit of a queue such as ``1.5bdp``, ``166packets`` or ``250kB``."""
    number, unit = _split(text, "a queue limit", LIMIT_UNITS, "1bdp")
    if unit == "bdp":
        if number > _MOST:
            raise ValueError(f"{text!r} is more than a queue limit can be")
        return Limit(number, "bdp")
    if unit == "packets":
        return Limit(Decimal(_parse(text, "a queue limit", {"packets": 1}, "166packets")), "packets")
    return Limit(Decimal(_parse(text, "a queue limit", SIZE_BYTES, "250kB")), "bytes")


def render_limit(limit: Limit) -> str:
    """A limit as :func:`parse_limit` reads it."""
    if limit.unit == "bytes":
        return _render(int(limit.amount), SIZE_BYTES)
    return f"{limit.amount:f}{limit.unit}"


# Divisor and unit in which all values of a figure or a column are shown.
SCALES = {"bps": (1e6, "Mbit/s"), "ns": (1e6, "ms"), "share": (0.01, "%")}
_LEAST_SHARE = 1e-6  # that is told by its digits
_FOUR_DIGITS = 9999.5  # from here on a number has more
_HUMAN = {
    "ns": ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns")),
    "bps": ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s"), (1, "bit/s")),
}


def human(value: object, unit: str = "") -> str:
    """A value for people: ``human(20_120_000, "ns")`` is ``20.12 ms``; shares in percent; None is a dash."""
    match value:
        case None:
            return "-"
        case bool():
            return "on" if value else "off"
        case dict():
            return ", ".join(f"{key} {human(v)}" for key, v in value.items() if v is not None) or "none"
        case list() | tuple():
            return ", ".join(human(v, unit) for v in value) or "none"
        case int() | float():
            return _number(value, unit)
    return str(value)


def _number(value: float, unit: str) -> str:
    if value == 0:
        return "0"
    if unit == "share":
        return f"{100 * value:.3g} %" if abs(value) >= _LEAST_SHARE else f"less than {100 * _LEAST_SHARE:g} %"
    if unit in _HUMAN:
        scale, name = next((s, n) for s, n in _HUMAN[unit] if abs(value) >= s or s == 1)
        scaled = value / scale
        return f"{_whole(scaled) if abs(scaled) >= _FOUR_DIGITS else f'{scaled:.4g}'} {name}"
    text = _whole(value) if float(value).is_integer() else f"{value:.3f}"
    return f"{text} {unit}".rstrip()


def _whole(value: float) -> str:
    return f"{round(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
