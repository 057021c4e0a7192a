"""Figures by name, of a point or of a set: for pages, notebooks (``run.plot.NAME()``) and ``fab figure``.

A function here finds the numbers and hands them to :mod:`dumbbell.report.figures`. It raises
:class:`dumbbell.studies.source.Missing`, with a sentence, where the run lacks them.
"""

from dumbbell.report.plots import of_run, of_set
from dumbbell.report.plots.kinds import OF_RUN, OF_SET, Plots

__all__ = ["OF_RUN", "OF_SET", "Plots", "of_run", "of_set"]
