"""Figures: functions from tables to plotly's figures, for pages, notebooks and exports."""

from dumbbell.report.figures.base import MAX_POINTS, Steps, thin
from dumbbell.report.figures.criteria import margins
from dumbbell.report.figures.live import of_runs
from dumbbell.report.figures.rapid import available, pstreams
from dumbbell.report.figures.recovery import around, pipes
from dumbbell.report.figures.run import (
    cwnd,
    fairness,
    goodput,
    label,
    per_flow,
    queue,
    srtt,
)
from dumbbell.report.figures.sequence import time_sequence
from dumbbell.report.figures.sets import (
    Axis,
    bands,
    boxes,
    curves,
    distributions,
    heat_map,
    stacks,
    tradeoff,
)
from dumbbell.report.figures.shapes import bars, histogram, intervals, lines, scatter

__all__ = [
    "MAX_POINTS",
    "Axis",
    "Steps",
    "around",
    "available",
    "bands",
    "bars",
    "boxes",
    "curves",
    "cwnd",
    "distributions",
    "fairness",
    "goodput",
    "heat_map",
    "histogram",
    "intervals",
    "label",
    "lines",
    "margins",
    "of_runs",
    "per_flow",
    "pipes",
    "pstreams",
    "queue",
    "scatter",
    "srtt",
    "stacks",
    "thin",
    "time_sequence",
    "tradeoff",
]
