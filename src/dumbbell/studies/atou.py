"""Samples of atou's flows, as their senders reported them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from dumbbell.plan import Flow
from dumbbell.run.content import IN_MEASUREMENT, Run


def flows_of_atou(points: Iterable[Path]) -> Iterator[tuple[str, tuple[Flow, pl.DataFrame]]]:
    """Each atou flow of some point directories: its label, the flow, and its samples by time.

    A label distinguishes a flow from the others. ``t_ns`` is the time since the flow's start. Points that
    cannot be read are skipped.
    """
    for point_dir in points:
        try:
            run = Run.open(point_dir)
            rows = pl.scan_parquet(point_dir / "tcp_info.parquet").filter(IN_MEASUREMENT).collect()
        except (OSError, ValueError, pl.exceptions.PolarsError):
            continue
        flows = [flow for flow in run.point.phase("measurement").flows if flow.kind == "atou"]
        for flow in flows:
            own = rows.filter(flow=flow.name).with_columns(pl.col("t_ns") - flow.start_ns).sort("t_ns")
            words = [run.point.label, flow.name if len(flows) > 1 or not run.point.label else ""]
            again = f"({run.point.repetition})" * (run.point.repetition > 1)
            if own.height:
                yield " ".join(filter(None, [*words, again])), (flow, own)
