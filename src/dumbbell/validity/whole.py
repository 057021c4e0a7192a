"""Checks that every run has: each file, event and counter is judged by a check, or has a waiver."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from dumbbell.facts.check import Check
from dumbbell.run.content import Run
from dumbbell.validity import answers, budget, events, files, rows, state

OF_FILES = (state.checks, files.checks, events.checks, answers.checks)
OF_ROWS = (rows.checks, budget.checks)


def checks(run: Run, tables: Mapping[str, pl.DataFrame]) -> list[Check]:
    """The checks of files and rows, which do not depend on what was measured."""
    of_files = [check for part in OF_FILES for check in part(run)]
    return [*of_files, *(check for part in OF_ROWS for check in part(run, tables))]
