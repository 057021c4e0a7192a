"""Packets of a direction with slots left in slots, by the capture of the interface that they leave by."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dumbbell import analysis
from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, close
from dumbbell.ingest.capture import Capture
from dumbbell.plan import PlannedPath, Way
from dumbbell.plan.actions import CaptureAction
from dumbbell.run.content import dig

OUTSIDE = 0.01  # share of the packets, because a router sends some of them late


def checks(of: Asked, host: str, name: Way, path: PlannedPath) -> Iterator[Check]:
    """Segments of TCP, both data and ACKs, left a router in slots; only where they were captured."""
    slot = path.way(name).slot
    device = dig(of.run.states[host], "path", "devices", name, "delay_line")
    captured = [a.name for a in of.measurement.hosts[host].actions if isinstance(a, CaptureAction)]
    if slot is None or device not in captured:
        return
    share, missing = None, "no segment was captured"
    try:
        times = _left(of, host, device, name)
    except (OSError, ValueError) as error:
        missing = str(error)
    else:
        outside, _ = analysis.out_of_slots(times, 1000 * slot.min_us)
        share = outside / len(times) if len(times) else None
    yield close(
        "slots",
        f"{host} {name}",
        0,
        share,
        tolerance=OUTSIDE,
        unit="share",
        what="share of packets that left outside of slots",
        missing=missing,
    )


def _left(of: Asked, host: str, device: str, name: Way) -> pl.Series:
    """The times (unix ns) at which segments to hosts behind this direction left."""
    behind = {
        flow.dst if flow.direction == name else flow.src
        for flow in of.measurement.flows
        if "tcp" in flow.protocols
    }
    capture = Capture.open(of.run.raw(host, "measurement", f"capture-{device}.pcap"))
    parts = [block.filter(pl.col("dst").is_in(sorted(behind)))["unix_ns"] for block in capture.segments()]
    return pl.concat(parts) if parts else pl.Series("unix_ns", [], pl.Int64)
