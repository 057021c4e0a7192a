"""The page of an evaluation, and the files beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from dumbbell.evaluation.criteria import Family
from dumbbell.evaluation.evaluation import Judgement
from dumbbell.evaluation.judge import Judged, Result, bound_in_words, metric_in_words
from dumbbell.evaluation.told import MARKS, for_paper, href, points, summary, sums
from dumbbell.report import figures, html, latex
from dumbbell.run.record import write_json
from dumbbell.units import human

PAGE = "evaluation.html"


def write(folder: Path, of: Judgement) -> Path:
    """Write ``evaluation.html``, ``summary.json`` and the tables in a directory; the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "summary.json", summary(folder, of))
    points(of).write_csv(folder / "criteria.csv")
    (folder / "criteria.tex").write_text(latex.texts(for_paper(of), _title(of)))
    html.save_figures_as("evaluation", *of.results)
    target = folder / PAGE
    target.write_text(
        html.page(
            "evaluation.html",
            title=_title(of),
            plotly=Markup(get_plotlyjs()),
            profile=of.asked.profile,
            points=of.points,
            references=of.references,
            sentences=[sums(name, results) for name, results in of.results.items()],
            candidates=list(of.results),
            families=[_family(folder, of, family, own) for family, own in of.families],
        )
    )
    return target


def _title(of: Judgement) -> str:
    return f"Evaluation of {', '.join(of.results)}"


def _family(
    folder: Path, of: Judgement, family: Family, own: Mapping[str, Sequence[Result]]
) -> dict[str, Any]:
    """A family's part of the page: its lines of the first table, its figure, and its points."""
    (first, *_) = own.values()
    lines = []
    for i, result in enumerate(first):
        results = {name: results[i] for name, results in own.items()}
        lines.append(
            {
                "criterion": result.criterion,
                "what": metric_in_words(result.criterion),
                "bound": bound_in_words(result.criterion, of.asked.against),
                "cells": [(one.state, MARKS[one.state], _cell(one)) for one in results.values()],
                "references": [
                    human(result.decisive.others.get(name), result.unit)
                    if name in result.decisive.others
                    else "-"
                    for name in of.references
                ],
                "points": [
                    (
                        point.label or "-",
                        [
                            (
                                MARKS[there.state],
                                there.state,
                                human(there.value, result.unit),
                                there.why,
                                href(folder, there),
                            )
                            for there in (one.points[j] for one in results.values())
                        ],
                        _limits(point, result.unit),
                        [human(point.others.get(name), result.unit) for name in of.references],
                    )
                    for j, point in enumerate(result.points)
                ],
            }
        )
    return {"of": family, "lines": lines, "figure": _figure(own)}


def _cell(result: Result) -> str:
    point = result.decisive
    return point.why if point.value is None else human(point.value, result.unit)


def _limits(point: Judged, unit: str) -> str:
    ends = [("at least", point.low), ("at most", point.high)]
    return " and ".join(f"{words} {human(value, unit)}" for words, value in ends if value is not None) or "-"


def _figure(own: Mapping[str, Sequence[Result]]) -> Figure:
    """How many times as good as the bound each candidate is, for each criterion at each point."""
    (first, *_) = own.values()
    names = [
        f"{result.criterion.name}{', ' if point.label else ''}{point.label}"
        for result in first
        for point in result.points
    ]
    margins = {
        name: [
            (None if math.isnan(point.margin) else point.margin, human(point.value, result.unit))
            for result in results
            for point in result.points
        ]
        for name, results in own.items()
    }
    return figures.margins(names, margins)
