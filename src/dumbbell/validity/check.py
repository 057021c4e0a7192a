"""Checks of many things of one kind."""

from __future__ import annotations

from collections.abc import Iterable

from dumbbell.validity.fact import Check

SAID = 3  # faults that a reason names; the others are counted


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
