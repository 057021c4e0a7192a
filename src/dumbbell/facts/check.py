"""The class `Check`, which compares a requested value with a measured one, and functions that make checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from dumbbell.units import human

SAID = 3  # how many faults a reason lists; it gives the number of the others


class Check(BaseModel):
    """The requested value of one fact, the measured value, and whether they agree.

    ``tolerance`` is absolute and has the unit ``unit``.
    """

    model_config = ConfigDict(extra="forbid")
    name: str
    kind: Literal["validity", "expect"]
    subject: str
    requested: Any
    measured: Any
    tolerance: float | None = None
    unit: str = ""
    ok: bool
    reason: str = ""


def fact(
    name: str,
    subject: str,
    requested: Any,
    measured: Any,
    *,
    ok: bool,
    reason: str,
    kind: Literal["validity", "expect"] = "validity",
    tolerance: float | None = None,
    unit: str = "",
) -> Check:
    """A check whose result ``ok`` the caller has computed; ``reason`` is '' if it is ok."""
    return Check(
        name=name,
        kind=kind,
        subject=subject,
        requested=requested,
        measured=measured,
        tolerance=tolerance,
        unit=unit,
        ok=ok,
        reason=reason,
    )


def same(name: str, subject: str, requested: Any, measured: Any, *, what: str, missing: str = "") -> Check:
    """A check that both values are equal."""
    ok = measured is not None and measured == requested
    reason = "" if ok else f"{what}: asked {human(requested)}, found {human(measured)}"
    if measured is None:
        reason = f"{what} not known: {missing or 'nothing was read back'}"
    return fact(name, subject, requested, measured, ok=ok, reason=reason)


def close(
    name: str,
    subject: str,
    requested: float,
    measured: float | None,
    *,
    tolerance: float,
    unit: str,
    what: str,
    missing: str,
) -> Check:
    """A check that the values differ by no more than ``tolerance``."""
    if measured is None:
        reason = f"{what} not known: {missing}"
    elif abs(measured - requested) <= tolerance:
        reason = ""
    elif requested == 0:
        reason = f"{what} is {human(measured, unit)}, more than {human(tolerance, unit)}"
    else:
        bounds = f"{human(requested, unit)} ± {human(tolerance, unit)}"
        reason = f"{what} is {human(measured, unit)}, asked {bounds}"
    return fact(
        name, subject, requested, measured, tolerance=tolerance, unit=unit, ok=not reason, reason=reason
    )


def faultless(name: str, subject: str, faults: Iterable[str]) -> Check:
    """A check that there are no faults; the reason lists the first ones."""
    found = list(faults)
    reason = "; ".join(found[:SAID])
    if len(found) > SAID:
        reason += f"; and {len(found) - SAID} more"
    return Check(
        name=name,
        kind="validity",
        subject=subject,
        requested=0,
        measured=len(found),
        unit="faults",
        ok=not found,
        reason=reason,
    )
