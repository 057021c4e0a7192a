"""Flows began in time, over the path of their start, with the requested congestion control."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, fact
from dumbbell.kinds.found import FOUND
from dumbbell.run.content import (
    ping_replies,
)
from dumbbell.run.of_flows import (
    failures,
)
from dumbbell.units import human


def checks(of: Asked) -> Iterator[Check]:
    """Checks of all flows of the measurement."""
    for flow in of.measurement.flows:
        for failure in failures(of.run, flow):
            yield fact("program", flow.name, "no error", failure, ok=False, reason=failure)
        yield from FOUND[flow.kind].checks(of, flow)


def pings(of: Asked) -> Iterator[Check]:
    """Each ping beside the flows had enough replies for its RTTs to represent the path.

    Full queues drop echoes too, by an unknown number; losses that the path is asked for are allowed on top.
    """
    path = of.point.path
    arriving = [min(state.arriving for _, state in way.states) for _, way in path.ways] if path else []
    least = of.point.validity.ping_replies * math.prod(arriving)
    for host, ping in of.run.pings("measurement"):
        share = len(ping_replies(of.run.raw(host, "measurement", f"ping-{ping.name}.txt"))) / ping.count
        what = "share of its echo requests that were answered"
        reason = f"{what} is {human(share, 'share')}, asked at least {human(least, 'share')}"
        ok = share >= least
        yield fact("ping replies", ping.name, least, share, unit="share", ok=ok, reason="" if ok else reason)
