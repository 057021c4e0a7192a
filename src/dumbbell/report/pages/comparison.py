"""Two sets of runs side by side, as parts of a page."""

from __future__ import annotations

from functools import partial

import polars as pl
from markupsafe import Markup

from dumbbell.compare.comparison import NOTHING
from dumbbell.compare.comparison import Comparison as Compared
from dumbbell.compare.sides import UNEXPLAINED
from dumbbell.report import figures, html
from dumbbell.report.parts import part
from dumbbell.studies.source import Missing

fill = partial(html.part, "comparison.html")


class Comparison(Compared):
    """Parts about two sets of run directories."""

    @part
    def table(self) -> Markup:
        """All metrics of both sets, and other differences between them."""
        if self.rows.is_empty():
            raise Missing(f"{NOTHING} {'; '.join(self.notes())}")
        return fill(
            "table",
            head=self.head(),
            rows=[self.cells(row) for row in self.rows.iter_rows(named=True)],
            says_unexplained=UNEXPLAINED,
            unexplained=self.unexplained,
            notes=self.notes(),
        )

    @part
    def figure(self) -> Markup:
        """The ratio of each metric, with its interval."""
        shown = self.rows.filter(pl.col("ratio").is_not_null())
        if shown.is_empty():
            raise Missing("There is no metric of which a ratio could be drawn.")
        names = [" ".join((r["metric"], r["subject"], r["point"])) for r in shown.iter_rows(named=True)]
        return fill("ratios", drawn=figures.intervals(names, shown, title="second / first"))
