"""Checks of a verdict as rows of a table: the requested and the measured value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dumbbell.plan import in_words
from dumbbell.units import human


class CheckRow(NamedTuple):
    """The texts of a check; ``ok`` is None for a fact that is not judged."""

    name: str
    subject: str
    asked: str
    measured: str
    tolerance: str = ""
    ok: bool | None = None


def row(check: dict[str, Any]) -> CheckRow:
    """The row of a check."""
    unit = check.get("unit", "")
    tolerance = f"± {human(check['tolerance'], unit)}" if check.get("tolerance") is not None else ""
    asked, measured = check["requested"], human(check["measured"], unit)
    if check["kind"] == "expect" and isinstance(asked, dict):
        asked = bounds(check)
    if check["name"] == "path":
        asked = in_words(asked) if isinstance(asked, dict) else asked
    if not check["ok"] and check["measured"] is None:
        measured = check["reason"]
    if check["requested"] == check["measured"] and isinstance(check["measured"], dict):
        measured = "the same"
    return CheckRow(check["name"], check["subject"], human(asked, unit), measured, tolerance, check["ok"])


def note(check: dict[str, Any]) -> str:
    """``expected ≥ 90 %``, with the flows if these are not all."""
    of = "" if check["subject"] == "all flows" else f", {check['subject']}"
    return f"expected {bounds(check)}{of}"


def bounds(check: dict[str, Any]) -> str:
    """The bounds of an expectation: ``≥ 90 %``."""
    signs, unit = {"min": "≥", "max": "≤"}, check.get("unit", "")
    return " and ".join(
        f"{signs[k]} {human(v, unit)}" for k, v in check["requested"].items() if v is not None
    )


def worst(checks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row for several checks that are all ok: that of the one furthest from its requested value."""
    if len(checks) == 1:
        return checks[0]
    numbers = all(isinstance(c["measured"], int | float) and c["tolerance"] is not None for c in checks)
    worst = max(checks, key=lambda c: abs(c["measured"] - c["requested"])) if numbers else checks[0]
    same = all(c["requested"] == worst["requested"] for c in checks)
    subject = f"{len(checks)} of {len(checks)}" + (f", worst {worst['subject']}" if numbers else "")
    return (
        worst | {"subject": subject} | ({} if same else {"requested": "as planned", "measured": "as planned"})
    )
