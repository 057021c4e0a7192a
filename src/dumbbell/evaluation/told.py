"""What an evaluation tells in texts and tables: for a terminal, as JSON, CSV and LaTeX."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import polars as pl

from dumbbell.evaluation.evaluation import Judgement
from dumbbell.evaluation.judge import FAIL, NO_ANSWER, PASS, Judged, Result, bound_in_words, metric_in_words
from dumbbell.units import human
from dumbbell.words import columns

MARKS = {PASS: "✓", FAIL: "✗", NO_ANSWER: "?"}


def text(of: Judgement) -> str:
    """A line for each criterion of each candidate, and the sums."""
    parts = []
    for name, results in of.results.items():
        rows = [("", "criterion", name, "bound", "references", "point"), *_lines(of, name, results)]
        parts += [*columns(rows), "", sums(name, results), ""]
    return "\n".join(parts).rstrip()


def sums(name: str, results: Sequence[Result]) -> str:
    """How many criteria a candidate passes, in a sentence."""
    count = {state: sum(of.state == state for of in results) for state in MARKS}
    failed = ", ".join(of.criterion.name for of in results if of.state == FAIL)
    sentence = f"{name} passes {count[PASS]} of {len(results)} criteria"
    if failed:
        sentence += f"; it fails {failed}"
    if count[NO_ANSWER]:
        lacking = ", ".join(of.criterion.name for of in results if of.state == NO_ANSWER)
        sentence += f"; there is no answer for {lacking}"
    return f"{sentence}."


def summary(folder: Path, of: Judgement) -> dict[str, object]:
    """All results, as ``summary.json`` has them."""
    return {
        "schema_version": 1,
        "profile": of.asked.profile,
        "references": list(of.references),
        "candidates": {
            name: {
                "module": None if subject.module is None else str(subject.module),
                "kernel": subject.kernel,
                "criteria": [_summed(folder, of, result) for result in of.results[name]],
            }
            for name, subject in ((subject.name, subject) for subject in of.asked.candidates)
        },
    }


def points(of: Judgement) -> pl.DataFrame:
    """A row for each criterion of each candidate at each point, with values in base units."""
    rows = [
        {
            "candidate": name,
            "family": result.family.name,
            "criterion": result.criterion.name,
            "metric": result.criterion.metric,
            "unit": result.unit,
            **_at(point),
        }
        for name, results in of.results.items()
        for result in results
        for point in result.points
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def for_paper(of: Judgement) -> pl.DataFrame:
    """The table of criteria as texts: the candidates' numbers and the references', the bound, the verdict."""
    (first, *_) = of.results.values()
    rows = []
    for i, result in enumerate(first):
        unit = result.unit
        row = {
            "criterion": result.criterion.title,
            "bound": bound_in_words(result.criterion, of.asked.against),
        }
        for name, results in of.results.items():
            one = results[i]
            row[name] = f"{human(one.decisive.value, unit)} ({one.state})"
        row |= {name: human(result.decisive.others.get(name), unit) for name in of.others}
        rows.append(row)
    return pl.DataFrame(rows)


def href(folder: Path, point: Judged) -> str | None:
    """The link from a directory to a point's report; None if there is none."""
    if point.report is None or not point.report.exists():
        return None
    return quote(os.path.relpath(point.report.resolve(), folder.resolve()))


def _lines(of: Judgement, name: str, results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    for result in results:
        point = result.decisive
        others = ", ".join(
            f"{other} {human(point.others.get(other), result.unit)}"
            for other in of.references
            if other != name
        )
        yield (
            MARKS[result.state],
            result.criterion.name,
            human(point.value, result.unit),
            bound_in_words(result.criterion, of.asked.against),
            others,
            point.why or point.label,
        )


def _summed(folder: Path, of: Judgement, result: Result) -> dict[str, object]:
    criterion = result.criterion
    return {
        "name": criterion.name,
        "family": result.family.name,
        "title": criterion.title,
        "metric": metric_in_words(result.criterion),
        "unit": result.unit,
        "bound": bound_in_words(criterion, of.asked.against),
        "source": criterion.source,
        "state": result.state,
        "points": [
            {**_at(point), "others": dict(point.others), "report": href(folder, point)}
            for point in result.points
        ],
    }


def _at(point: Judged) -> dict[str, object]:
    return {
        "point": point.label,
        "value": point.value,
        "low": point.low,
        "high": point.high,
        "state": point.state,
        "why": point.why,
        "margin": None if math.isnan(point.margin) else point.margin,
    }
