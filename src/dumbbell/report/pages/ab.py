"""The page of an A/B: the answer in a sentence, then what it follows from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import polars as pl
from markupsafe import Markup
from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from dumbbell.compare.answer import NO_VERDICT, Answer, Row
from dumbbell.compare.sides import UNEXPLAINED
from dumbbell.metrics.registry import title
from dumbbell.report import figures, html
from dumbbell.units import human

PAGE = "ab.html"


def render(folder: Path, answer: Answer, replaced: Sequence[str] = ()) -> Path:
    """Write ``ab.html`` of an A/B in its directory; returns its path."""
    design = answer.design
    html.save_figures_as("ab", Path(design.scenario).stem)
    target = folder / PAGE
    told = not answer.unexplained
    others = list(design.sides)[1:] if told else []
    target.write_text(
        html.page(
            "ab.html",
            title=f"A/B of {', '.join(design.sides)}",
            plotly=Markup(get_plotlyjs()),
            design=design,
            what=f"{title(design.metric)} of {design.of}",
            least=human(design.least, "share"),
            sentences=answer.sentences() if told else [UNEXPLAINED, *answer.unexplained, NO_VERDICT],
            head=_head(answer),
            rows=_rows(answer) if told else [],
            how=answer.how(),
            rounds_head=["round", "order", "reports", *(f"change, {side}" for side in others)],
            rounds=_rounds(folder, answer),
            over_rounds=_over_rounds(answer) if told else None,
            ratios=_ratios(answer) if told else None,
            several=len(answer.primary) > 1,
            notes=[*answer.notes(), *replaced],
        )
    )
    return target


def _head(answer: Answer) -> list[str]:
    first, *others = answer.design.sides
    return [
        "metric",
        "of",
        first,
        *(word for side in others for word in (side, "change", "interval", "p")),
    ]


def _lines(answer: Answer) -> dict[tuple[str, str, str], list[Row]]:
    """The rows of all sides for each metric; the primary one first."""
    lines: dict[tuple[str, str, str], list[Row]] = {}
    for row in (*answer.primary, *answer.others):
        lines.setdefault((row.metric, row.subject, row.point), []).append(row)
    return lines


def _rows(answer: Answer) -> list[list[str]]:
    """A line for each metric, with all sides; the primary one in bold."""
    shown = []
    for (metric, subject, point), rows in _lines(answer).items():
        by_side = {row.side: row for row in rows}
        name = metric if point == "-" else f"{metric}, {point}"
        cells = [name, subject, human(rows[0].means[0], rows[0].unit)]
        for side in list(answer.design.sides)[1:]:
            cells += _cells(by_side.get(side))
        shown.append(cells)
    shown[0] = [Markup("<b>{}</b>").format(cell) for cell in shown[0]]
    return shown


def _cells(row: Row | None) -> list[str]:
    if row is None:
        return ["-"] * 4
    marks = {True: "\N{NO-BREAK SPACE}*", False: "", None: "\N{NO-BREAK SPACE}?"}
    return [
        human(row.means[1], row.unit),
        _spaced(row.change(row.effect.value)) + marks[row.differ],
        _spaced(row.interval).replace("..", " to "),
        human(row.p),
    ]


def _spaced(change: str) -> str:
    """A change as people write it, in one line."""
    return change.replace("%", "\N{NO-BREAK SPACE}%")


def _rounds(folder: Path, answer: Answer) -> list[tuple[int, str, list[tuple[str, str]], list[str]]]:
    """Each round: number, order, the reports of its runs, and the differences of the primary metric."""
    units = {row.side: row for row in answer.primary}
    shown = []
    for i, of in enumerate(answer.design.rounds[: answer.design.number]):
        links = [
            (side.name, quote(str((side.dirs[i] / "report.html").resolve().relative_to(folder.resolve()))))
            for side in answer.sides
        ]
        changes = [
            _spaced(units[side].change(math.log1p(values[i]) if units[side].ratio else values[i]))
            for side, values in answer.differences.items()
            if not answer.unexplained
        ]
        shown.append((of.number, ", ".join(of.sides), links, changes))
    return shown


def _over_rounds(answer: Answer) -> Figure:
    """The differences of the primary metric, round by round."""
    ratio = all(row.ratio for row in answer.primary)
    scale = 100 if ratio else 1
    return figures.scatter(
        {
            side: pl.DataFrame(
                {"x": [float(i) for i in range(1, len(found) + 1)], "y": [scale * value for value in found]}
            )
            for side, found in answer.differences.items()
        },
        x_title="round",
        y_title="change [%]" if ratio else f"change [{answer.primary[0].unit}]",
        lines={"no change": [(1, 0), (float(answer.design.number), 0)]},
    )


def _ratios(answer: Answer) -> Figure | None:
    """All metrics whose values have a ratio, with their intervals."""
    rows = [row for of in _lines(answer).values() for row in of if row.ratio]
    if not rows:
        return None
    several = len(answer.primary) > 1
    names = [
        " ".join(filter(None, (row.metric, row.subject, row.point.strip("-"), row.side if several else "")))
        for row in rows
    ]
    ends = [(row.effect.value, row.effect.low, row.effect.high) for row in rows]
    table = pl.DataFrame(
        [[None if end is None else math.exp(end) for end in of] for of in ends],
        schema=dict.fromkeys(("ratio", "low", "high"), pl.Float64),
        orient="row",
    )
    return figures.intervals(names, table, title=f"ratio to {next(iter(answer.design.sides))}")
