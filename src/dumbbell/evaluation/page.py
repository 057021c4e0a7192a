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
            references=of.others,
            against=of.references,
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
    """A family's part of the page: its lines of the first table, with their points, and its figure."""
    lines = [_line(folder, of, results) for results in zip(*own.values(), strict=True)]
    return {"of": family, "lines": lines, "figure": _figure(own)}


def _line(folder: Path, of: Judgement, results: Sequence[Result]) -> dict[str, Any]:
    """A criterion with the results of all candidates. References and bounds are those of the first one."""
    first = results[0]
    return {
        "criterion": first.criterion,
        "what": metric_in_words(first.criterion),
        "bound": bound_in_words(first.criterion, of.asked.against),
        "cells": [(one.state, MARKS[one.state], _cell(one)) for one in results],
        "references": _references(of, first, first.decisive),
        "points": [
            {
                "label": there[0].label or "-",
                "cells": [
                    (one.state, MARKS[one.state], _told(one.value, first.unit), one.why, href(folder, one))
                    for one in there
                ],
                "references": _references(of, first, there[0]),
                "bound": _limits(there[0], first.unit),
            }
            for there in zip(*(result.points for result in results), strict=True)
        ],
    }


def _references(of: Judgement, result: Result, point: Judged) -> list[str]:
    """Values of the references at a point, as texts."""
    return [_told(point.others.get(name), result.unit) for name in of.others]


def _cell(result: Result) -> str:
    point = result.decisive
    return point.why if point.value is None else _told(point.value, result.unit)


def _told(value: float | None, unit: str) -> str:
    """A value in one line."""
    return human(value, unit).replace(" ", "\N{NO-BREAK SPACE}")


def _limits(point: Judged, unit: str) -> str:
    ends = [("at least", point.low), ("at most", point.high)]
    return " and ".join(f"{words} {_told(value, unit)}" for words, value in ends if value is not None) or "-"


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
