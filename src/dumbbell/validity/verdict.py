"""The verdict of a run: all checks of its validity and of its expectations.

A check that cannot be made because something is missing fails. Only a valid run can be ``failed``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, fact, same
from dumbbell.metrics.measure import Tables as Measured
from dumbbell.metrics.registry import METRICS
from dumbbell.run.content import (
    Run,
)
from dumbbell.units import human
from dumbbell.validity import flows, hosts, path, sampling, whole
from dumbbell.validity.settings import settings_checks


class Verdict(BaseModel):
    """The content of ``verdict.json``."""

    model_config = ConfigDict(extra="forbid")
    state: Literal["passed", "failed", "invalid"]
    reasons: list[str]
    checks: list[Check]

    @classmethod
    def of(cls, checks: list[Check]) -> Verdict:
        """Invalid if a validity check fails, else failed if an expectation is not met, else passed."""
        invalid = [c for c in checks if c.kind == "validity" and not c.ok]
        failed = [c for c in checks if c.kind == "expect" and not c.ok]
        state: Literal["passed", "failed", "invalid"] = (
            "invalid" if invalid else "failed" if failed else "passed"
        )
        return cls(
            state=state, reasons=[f"{c.subject}: {c.reason}" for c in invalid or failed], checks=checks
        )


class Stored(BaseModel):
    """The number of rows of a measurement in the spools and in InfluxDB (None if the query failed)."""

    spooled: int
    stored: int | None
    backfilled: int = 0
    error: str = ""


def judge(
    run: Run, tables: dict[str, pl.DataFrame], stored: dict[str, Stored] | None, troubles: Sequence[str] = ()
) -> list[Check]:
    """All checks of a run. ``stored`` is None if the run was made without InfluxDB."""
    return [*asked(run, tables, stored, troubles), *whole.checks(run, tables)]


def asked(
    run: Run, tables: dict[str, pl.DataFrame], stored: dict[str, Stored] | None, troubles: Sequence[str] = ()
) -> list[Check]:
    """The checks that compare the plan with the run."""
    of = Asked(run, tables)
    checks = [
        *hosts.troubles(troubles),
        *hosts.agents(of),
        *hosts.states(of),
        *settings_checks(run),
        *hosts.gaps(of),
    ]
    if run.point.path is not None:
        checks += path.checks(of, run.point.path)
    for part in (
        hosts.clocks,
        hosts.strangers,
        flows.checks,
        flows.pings,
        sampling.samples,
        sampling.finals,
        hosts.cpus,
    ):
        checks += part(of)
    return [*checks, *sampling.sources(of), *_stored(stored or {}), *_expectations(of)]


def _stored(stored: dict[str, Stored]) -> Iterator[Check]:
    for error in sorted({rows.error for rows in stored.values() if rows.stored is None}):
        spooled = sum(rows.spooled for rows in stored.values())
        yield same("rows stored", "InfluxDB", spooled, None, what="number of its rows", missing=error)
    for name, rows in stored.items():
        if rows.stored is not None:
            what = f"rows of {name} in InfluxDB"
            yield same("rows stored", name, rows.spooled, rows.stored, what=what)


def _expectations(of: Asked) -> Iterator[Check]:
    tables = Measured(of.run, of.tables)
    for bound in of.point.expect:
        unit, name = METRICS[bound.metric].unit, bound.metric
        for measured in tables.measure(bound):
            value, reason = measured.value, ""
            kind: Literal["validity", "expect"] = "expect"
            if value is None:
                # A metric that cannot be measured makes the run invalid, not failed.
                kind, reason = "validity", f"{name} not known: {measured.why}"
            elif bound.min is not None and value < bound.min:
                reason = f"{name} is {human(value, unit)}, below {human(bound.min, unit)}"
            elif bound.max is not None and value > bound.max:
                reason = f"{name} is {human(value, unit)}, above {human(bound.max, unit)}"
            requested = {"min": bound.min, "max": bound.max}
            yield fact(
                name,
                measured.subject,
                requested,
                value,
                unit=unit,
                ok=not reason,
                reason=reason,
                kind=kind,
            )
