"""One CSV in long form: a row for each value, as ggplot2 and pivot tables take it."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from dumbbell import analysis
from dumbbell.studies.points import Points
from dumbbell.studies.source import Missing, Source

SENDER = {"srtt_us": "us", "snd_cwnd": "segments", "total_retrans": "segments", "unacked": "segments"}
QUEUE = {"qlen_packets": "packets", "backlog_bytes": "bytes", "dropped_packets": "packets"}
COLUMNS = ("of", "stream", "t_ns", "variable", "value", "unit")


def write(points: Points, path: Path) -> None:
    """Write every point, one after the other: ``[*index, of, stream, t_ns, variable, value, unit]``.

    ``of`` is a flow, or the host and device of a queue. Missing if no point has samples.
    """
    empty = True
    with path.open("wb") as file:
        for place, source in zip(points.index["place"], points, strict=True):
            rows = of_point(source)
            if rows.is_empty():
                continue
            about = points.index.filter(place=place)
            about.join(rows, how="cross").write_csv(file, include_header=empty)
            empty = False
    if empty:
        path.unlink()
        raise Missing(f"None of {len(points)} points has samples.")


def of_point(run: Source) -> pl.DataFrame:
    """The values of one point: goodput in the report's intervals, senders' samples, queues."""
    parts = []
    try:
        rates = run.goodputs(run.bin_ns())
        rates = rates.select("t_ns", "goodput_bps", of="flow", stream=pl.lit(None, pl.String))
        parts.append(_long(rates, {"goodput_bps": "bps"}))
    except Missing:
        pass
    try:
        rows = run.rows("tcp_info", "flow", "stream", "t_ns", *SENDER, where=pl.col("side") == "sender")
        parts.append(_long(rows.rename({"flow": "of"}), SENDER))
    except Missing:
        pass
    try:
        queues = analysis.queue(run.rows("qdisc"))
        of = pl.concat_str("host", "dev", "kind", "handle", separator=" ").alias("of")
        parts.append(_long(queues.with_columns(of, stream=pl.lit(None, pl.String)), QUEUE))
    except Missing:
        pass
    return pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String))


def _long(rows: pl.DataFrame, units: dict[str, str]) -> pl.DataFrame:
    there = [name for name in units if name in rows.columns]
    values = rows.with_columns(pl.col(there).cast(pl.Float64))
    melted = values.unpivot(there, index=["of", "stream", "t_ns"]).drop_nulls("value")
    unit = pl.col("variable").replace_strict(units, return_dtype=pl.String)
    return melted.with_columns(unit.alias("unit")).select(COLUMNS).cast({"stream": pl.String})
