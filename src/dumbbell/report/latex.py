"""A table of medians for a paper, in LaTeX with booktabs."""

from __future__ import annotations

import re

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined

from dumbbell.run.catalogue import LEVEL
from dumbbell.units import SCALES

_ESCAPED = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}


def escape(text: object) -> str:
    """A text as LaTeX shows it; a dash for None."""
    return "--" if text is None else "".join(_ESCAPED.get(char, char) for char in str(text))


def table(medians: pl.DataFrame, caption: str) -> str:
    """:meth:`dumbbell.studies.points.Points.medians` as a table: numbers to four digits, intervals beside."""
    numbers = [name for name in medians.columns if f"{name}_low" in medians.columns]
    known = [
        name
        for name in medians.columns
        if not re.search("_(low|high)$", name) and name not in numbers and medians[name].count()
    ]
    head = [escape(name.removeprefix(LEVEL).replace("_", " ")) for name in known]
    scales = {}
    for name in numbers:
        metric, _, unit = name.rpartition("_")
        scales[name], shown = SCALES.get(unit, (1.0, ""))
        title = escape((metric if unit in SCALES else name).replace("_", " "))
        head.append(f"{title} ({escape(shown)})" if shown else title)
    rows = [
        [
            *(escape(row[name]) for name in known),
            *(_number(row, name, scales[name]) for name in numbers),
        ]
        for row in medians.iter_rows(named=True)
    ]
    return _templates.get_template("table.tex").render(
        note=" Medians with their 95 % intervals (bootstrap) over repetitions.",
        columns="l" * len(known) + "r" * len(numbers),
        head=head,
        rows=rows,
        caption=escape(caption),
    )


def texts(rows: pl.DataFrame, caption: str) -> str:
    """A table of texts; its columns' names are its head."""
    return _templates.get_template("table.tex").render(
        note="",
        columns="l" * rows.width,
        head=[escape(name) for name in rows.columns],
        rows=[[escape(cell) for cell in row] for row in rows.iter_rows()],
        caption=escape(caption),
    )


def _number(row: dict[str, float | None], name: str, scale: float) -> str:
    value, low, high = (row[column] for column in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return "--"
    told = f"{value / scale:.4g}"
    return told if low is None or high is None else f"{told} [{low / scale:.4g}, {high / scale:.4g}]"


_templates = Environment(
    loader=PackageLoader("dumbbell.report"),
    undefined=StrictUndefined,
    autoescape=False,  # this is LaTeX, whose texts are escaped above
    trim_blocks=True,
    lstrip_blocks=True,
    block_start_string="<%",
    block_end_string="%>",
    variable_start_string="<<",
    variable_end_string=">>",
    comment_start_string="<#",
    comment_end_string="#>",
)
