"""Sets of runs side by side, as parts of a page."""

from __future__ import annotations

from functools import partial

import polars as pl
from markupsafe import Markup
from plotly.graph_objects import Figure

from dumbbell.compare.comparison import NOTHING
from dumbbell.compare.comparison import Comparison as Compared
from dumbbell.compare.sides import UNEXPLAINED
from dumbbell.report import figures, html
from dumbbell.report.parts import part
from dumbbell.studies.source import Missing

fill = partial(html.part, "comparison.html")


class Comparison(Compared):
    """Parts about sets of run directories."""

    @part
    def table(self) -> Markup:
        """All metrics of both sets, and other differences between them."""
        if self.rows.is_empty():
            raise Missing(f"{NOTHING} {'; '.join(self.notes())}")
        return fill(
            "table",
            head=self.head(),
            rows=self.cells(),
            says_unexplained=UNEXPLAINED,
            unexplained=self.unexplained,
            notes=self.notes(),
        )

    @part
    def figure(self) -> Markup:
        """The ratio of each metric, with its interval."""
        return fill("ratios", drawn=self.ratios())

    def ratios(self) -> Figure:
        """The figure of these ratios; :class:`Missing` if there is none."""
        shown = self.rows.filter(pl.col("ratio").is_not_null())
        if shown.is_empty():
            raise Missing("There is no metric of which a ratio could be drawn.")
        first, *others = (side.name.removeprefix("the ") for side in self.sides)
        keys = ["metric", "subject", "point", *(["side"] if len(others) > 1 else [])]
        names = [" ".join(row).removesuffix(" -") for row in shown.select(keys).iter_rows()]
        of = others[0] if len(others) == 1 else "other"
        return figures.intervals(names, shown, title=f"{of} / {first}")
