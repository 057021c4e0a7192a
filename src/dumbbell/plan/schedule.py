"""When a UDP flow sends, with every random duration drawn."""

from __future__ import annotations

import random

from dumbbell.plan.document import Step
from dumbbell.scenario import Random, RatedPeriod, UdpFlow
from dumbbell.units import Period

MAX_STEPS = 100_000
DEFAULT_SHAPE = 1.5


def periods_span(flow: UdpFlow) -> tuple[int, int] | None:
    """First start and last end of a flow's own periods; None if it has none."""
    if flow.periods is None:
        return None
    spans = [_rated(item, flow.rate)[0] for item in flow.periods]
    return spans[0].start, spans[-1].end


def steps(flow: UdpFlow, start_ns: int, duration_ns: int, rng: random.Random) -> list[Step]:
    """Rates of a flow from its start on. ValueError if there are too many."""
    found: list[Step] = []
    if flow.periods is not None:
        for item in flow.periods:
            period, rate = _rated(item, flow.rate)
            at = period.start - start_ns
            if found and found[-1].at_ns == at:
                found.pop()
            found.append(Step(at_ns=at, rate_bps=rate))
            found.append(Step(at_ns=period.end - start_ns, rate_bps=0))
        return found[:-1]  # the end of the flow is its duration
    if flow.active is None or flow.idle is None:
        return [Step(at_ns=0, rate_bps=flow.rate)]
    at = 0
    while at < duration_ns:
        found.append(Step(at_ns=at, rate_bps=flow.rate))
        at += _draw(flow.active, rng)
        if at < duration_ns:
            found.append(Step(at_ns=at, rate_bps=0))
            at += _draw(flow.idle, rng)
        if len(found) > MAX_STEPS:
            raise ValueError(f"it would turn on and off more than {MAX_STEPS} times")
    return found


def _rated(item: Period | RatedPeriod, rate: int) -> tuple[Period, int]:
    return (item.during, item.rate) if isinstance(item, RatedPeriod) else (item, rate)


def _draw(duration: int | Random, rng: random.Random) -> int:
    """A duration in ns, at least 1 us, and whole microseconds: no platform's logarithm shows in it."""
    if isinstance(duration, int):
        return duration
    if duration.exponential is not None:
        drawn = rng.expovariate(1 / duration.exponential)
    elif duration.pareto is not None:
        shape = duration.shape or DEFAULT_SHAPE
        drawn = duration.pareto * (shape - 1) / shape * rng.paretovariate(shape)
    else:
        assert duration.uniform is not None
        drawn = rng.uniform(duration.uniform.start, duration.uniform.end)
    return max(1, round(min(drawn, 1e18) / 1000)) * 1000
