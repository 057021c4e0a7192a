"""Checks of a verdict as rows of a table: what was asked beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from dumbbell.plan import in_words
from dumbbell.report import html
from dumbbell.units import human


def table(rows: Iterable[str]) -> str:
    """Rows under their heads."""
    return html.table(("what", "where", "asked", "measured", "tolerance", ""), rows)


def row(check: dict[str, Any]) -> str:
    """A check."""
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
    return cells(
        check["name"],
        check["subject"],
        human(asked, unit),
        measured,
        tolerance,
        ok=check["ok"],
    )


def note(check: dict[str, Any]) -> str:
    """``expected ≥ 90 %``, and of which flows if not of all."""
    of = "" if check["subject"] == "all flows" else f", {escape(check['subject'])}"
    return f"expected {bounds(check)}{of}"


def bounds(check: dict[str, Any]) -> str:
    """``≥ 90 %`` of an expectation."""
    signs, unit = {"min": "≥", "max": "≤"}, check.get("unit", "")
    return " and ".join(
        f"{signs[k]} {human(v, unit)}" for k, v in check["requested"].items() if v is not None
    )


def cells(name: str, subject: str, asked: str, measured: str, tolerance: str, *, ok: bool | None) -> str:
    """A row of texts; None is a fact that nobody judges."""
    mark = {
        True: '<span class="yes">✓ ok</span>',
        False: '<span class="no">✗ not ok</span>',
        None: "",
    }
    names = (name, subject, asked, measured, tolerance)
    classes = ("", "subject", "", "", "subject")
    cells = "".join(f'<td class="{c}">{escape(text)}</td>' for c, text in zip(classes, names, strict=True))
    return f'<tr class="{"bad" if ok is False else ""}">{cells}<td class="mark">{mark[ok]}</td></tr>'


def worst(checks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row for checks that are all ok: the one farthest from what was asked."""
    if len(checks) == 1:
        return checks[0]
    numbers = all(isinstance(c["measured"], int | float) and c["tolerance"] is not None for c in checks)
    worst = max(checks, key=lambda c: abs(c["measured"] - c["requested"])) if numbers else checks[0]
    same = all(c["requested"] == worst["requested"] for c in checks)
    subject = f"{len(checks)} of {len(checks)}" + (f", worst {worst['subject']}" if numbers else "")
    return (
        worst | {"subject": subject} | ({} if same else {"requested": "as planned", "measured": "as planned"})
    )
