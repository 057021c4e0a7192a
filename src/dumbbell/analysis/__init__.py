"""Pure functions that compute numbers and series of TCP from tidy tables.

Times are ``t_ns``: nanoseconds since the t0 of the phase. Rates are bits per second of payload (goodput).
"""

from dumbbell.analysis.compare import VALID, compare, only_one_has
from dumbbell.analysis.connection import PIPE, SAMPLED_FROM, budget, samples, signals, state_shares
from dumbbell.analysis.cross_traffic import beside, growth_by_period, on_off, periods
from dumbbell.analysis.fairness import convergence_ns, fairness, jain_index
from dumbbell.analysis.fetches import Latency, fetch_counters, fetch_summary, fetches, latency
from dumbbell.analysis.paws import Budget, Overtaken, Paws
from dumbbell.analysis.processor import saturated
from dumbbell.analysis.rapid import AVAILABLE_FROM, available, pstreams
from dumbbell.analysis.rates import (
    COUNTED_FROM,
    MIN_COVER,
    counters,
    datagram_counters,
    ended,
    goodput,
    grown_u32,
    interval_counters,
    mean_goodput,
    over_life,
    sender_counter,
    steps,
    unwrap_u32,
    utilisation,
)
from dumbbell.analysis.recovery import LOSING, ca_states, recoveries, reductions, windows
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
    percentile_interval,
    ratio_interval,
    share_interval,
    slope,
)

__all__ = [
    "AVAILABLE_FROM",
    "COUNTED_FROM",
    "LOSING",
    "MIN_COVER",
    "PIPE",
    "SAMPLED_FROM",
    "VALID",
    "Budget",
    "Interval",
    "Kink",
    "Latency",
    "Overtaken",
    "Paws",
    "Slope",
    "available",
    "beside",
    "beyond_two_sigma",
    "budget",
    "ca_states",
    "compare",
    "confusion",
    "convergence_ns",
    "counters",
    "datagram_counters",
    "detectable",
    "difference_interval",
    "ended",
    "fairness",
    "fetch_counters",
    "fetch_summary",
    "fetches",
    "goodput",
    "grown_u32",
    "growth_by_period",
    "interval_counters",
    "jain_index",
    "kink",
    "latency",
    "mean_goodput",
    "median_interval",
    "on_off",
    "only_one_has",
    "over_life",
    "percentile",
    "percentile_interval",
    "periods",
    "pstreams",
    "queue",
    "ratio_interval",
    "recoveries",
    "reductions",
    "samples",
    "saturated",
    "sender_counter",
    "share_interval",
    "signals",
    "slope",
    "state_shares",
    "steps",
    "unwrap_u32",
    "utilisation",
    "windows",
]
