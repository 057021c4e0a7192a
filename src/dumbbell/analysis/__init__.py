"""Pure functions from tidy tables to the numbers and series that TCP people look at.

Times are ``t_ns``: nanoseconds since the t0 of the phase. Rates are bits per second of payload (goodput).
"""

from dumbbell.analysis.compare import compare, only_one_has
from dumbbell.analysis.connection import budget, samples, signals, state_shares
from dumbbell.analysis.fairness import convergence_ns, fairness, jain_index
from dumbbell.analysis.fetches import fetch_counters, fetch_summary, fetches
from dumbbell.analysis.rates import (
    COUNTED_FROM,
    MIN_COVER,
    counters,
    datagram_counters,
    goodput,
    mean_goodput,
    sender_counter,
    steps,
    unwrap_u32,
    utilisation,
)
from dumbbell.analysis.router import queue
from dumbbell.analysis.statistics import (
    Interval,
    Kink,
    Slope,
    beyond_two_sigma,
    confusion,
    detectable,
    difference_interval,
    kink,
    median_interval,
    percentile,
    ratio_interval,
    slope,
)

__all__ = [
    "COUNTED_FROM",
    "MIN_COVER",
    "Interval",
    "Kink",
    "Slope",
    "beyond_two_sigma",
    "budget",
    "compare",
    "confusion",
    "convergence_ns",
    "counters",
    "datagram_counters",
    "detectable",
    "difference_interval",
    "fairness",
    "fetch_counters",
    "fetch_summary",
    "fetches",
    "goodput",
    "jain_index",
    "kink",
    "mean_goodput",
    "median_interval",
    "only_one_has",
    "percentile",
    "queue",
    "ratio_interval",
    "samples",
    "sender_counter",
    "signals",
    "slope",
    "state_shares",
    "steps",
    "unwrap_u32",
    "utilisation",
]
