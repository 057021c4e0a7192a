"""A check: a fact that was asked for, beside the one that was found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from dumbbell.units import human

SAID = 3  # faults that a reason names; the others are counted


class Check(BaseModel):
    """One requested fact beside the measured one; ``tolerance`` is absolute, in ``unit``."""

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
    """A check that its caller has made; ``reason`` is '' if it is ok."""
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
    """Both are equal."""
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
    """They differ by no more than a tolerance."""
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
    """A check of many things of one kind, of which the first that are wrong are said."""
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
