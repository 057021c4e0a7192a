"""Whether the timestamps that segments echo are ones that the other end has sent (RFC 7323)."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

COLUMNS = ("at", "src", "src_port", "dst", "dst_port", "flags", "tsval", "tsecr")
_ACK, _RST = 16, 4
_FROM = ("src", "src_port", "dst", "dst_port")
_BACK = ("dst", "dst_port", "src", "src_port")


@dataclass
class Echoes:
    """Counts the echoes of a capture, and those of timestamps that it has not seen before from the other end.

    Segments that were sent before the capture began, or lost before they came to it, make echoes unmatched.
    """

    echoes: int = 0
    unmatched: int = 0
    _sent: dict[tuple[object, ...], int] = field(default_factory=dict)  # where each timestamp came first

    def feed(self, segments: pl.DataFrame) -> None:
        """The next segments of a capture, as ``Capture.segments`` has them."""
        rows = segments.select(COLUMNS).drop_nulls("tsval").filter(pl.col("flags") & _RST == 0)
        first = rows.group_by(*_FROM, "tsval").agg(pl.col("at").min())
        for *key, at in first.iter_rows():
            self._sent.setdefault(tuple(key), at)
        asked = rows.filter(pl.col("flags") & _ACK > 0).group_by(*_BACK, "tsecr")
        for *key, at, count in asked.agg(pl.col("at").min(), pl.len()).iter_rows():
            self.echoes += count
            # What echoes a timestamp first is the test: those after it have it from there.
            self.unmatched += count if self._sent.get(tuple(key), at) >= at else 0
