"""read_tcp, read_udp: flows of files that other tools wrote."""

from __future__ import annotations

import polars as pl

from dumbbell.kinds.found.base import Counted, Found, Tables, share
from dumbbell.kinds.found.shared import retransmits
from dumbbell.plan import Flow
from dumbbell.run.content import IN_MEASUREMENT, Run

INTERVALS = "intervals.parquet"  # [flow, begin_ns, end_ns, bytes]: what tools counted


class Read(Found):
    """Their rows are those of tables; some tools count bytes in intervals instead."""

    def intervals(self, run: Run, flow: Flow) -> list[tuple[int, int, int]] | None:
        """What the tool counted; None if it counted nothing, or if ``tcp_info`` tells more."""
        try:
            rows = pl.scan_parquet(run.dir / INTERVALS).filter(flow=flow.name).collect()
        except OSError:
            return None
        return rows.select("begin_ns", "end_ns", "bytes").rows() or None

    def retransmitted(self, tables: Tables, flow: Flow) -> Counted:
        """Retransmissions, and their share if the file tells the number of all segments."""
        rows = tables["tcp_info"].filter(IN_MEASUREMENT).filter(flow=flow.name, side="sender")
        told = rows.filter(pl.col("total_retrans").is_not_null())
        if told.is_empty():
            return None, None
        if told["data_segs_out"].null_count() == 0:
            return retransmits(told)
        return int(told.group_by("stream").agg(pl.col("total_retrans").max())["total_retrans"].sum()), None

    def lost_datagrams(self, run: Run, flow: Flow) -> Counted:
        """Datagrams that the receiver missed."""
        rows = pl.read_parquet(run.dir / "udp.parquet").filter(flow=flow.name)
        last = rows.group_by("stream").agg(pl.col("lost_packets", "received_packets").max())
        lost, got = (int(last[name].sum()) for name in ("lost_packets", "received_packets"))
        return share(lost, lost + got)


FOUND: dict[str, Found] = {"read_tcp": Read(), "read_udp": Read()}
