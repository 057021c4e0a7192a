"""Figures: functions from tables to plotly's figures, for pages, notebooks and exports."""

from dumbbell.report.figures.base import MAX_POINTS, Steps, thin
from dumbbell.report.figures.live import of_runs
from dumbbell.report.figures.rapid import available, pstreams
from dumbbell.report.figures.recovery import around, pipes
from dumbbell.report.figures.run import (
    cwnd,
    fairness,
    goodput,
    per_flow,
    queue,
    srtt,
)
from dumbbell.report.figures.shapes import bars, histogram, intervals, lines, scatter

__all__ = [
    "MAX_POINTS",
    "Steps",
    "around",
    "available",
    "bars",
    "cwnd",
    "fairness",
    "goodput",
    "histogram",
    "intervals",
    "lines",
    "of_runs",
    "per_flow",
    "pipes",
    "pstreams",
    "queue",
    "scatter",
    "srtt",
    "thin",
]
