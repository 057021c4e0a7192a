"""Packets that leave together, in slots of time."""

from __future__ import annotations

import polars as pl

EDGE = 0.25  # share of a slot within which packets leave together, and by which the next slot may be early


def out_of_slots(unix_ns: pl.Series, slot_ns: int) -> tuple[int, int]:
    """How many of the packets that left at these times left outside of slots, and how many slots there were.

    Packets of a slot leave within a quarter of it, and a slot begins ``slot_ns`` after the one before it, or
    later. All packets of one that begins too early are outside.
    """
    times = pl.DataFrame({"at": unix_ns.sort()})
    apart = (pl.col("at").diff().fill_null(slot_ns) > EDGE * slot_ns).cum_sum()
    packets = times.with_columns(slot=apart).with_columns(first=pl.col("at").first().over("slot"))
    late = packets.filter(pl.col("at") - pl.col("first") > EDGE * slot_ns).height
    slots = packets.group_by("slot", maintain_order=True).agg(
        pl.col("first").first(),
        together=(pl.col("at") - pl.col("first") <= EDGE * slot_ns).sum(),
    )
    early = slots.filter(pl.col("first").diff() < (1 - EDGE) * slot_ns)
    return late + int(early["together"].sum()), slots.height
