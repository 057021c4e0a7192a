"""One long transfer of TCP: samples of its sender, and the signals that made it back off."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Flow
from dumbbell.run.content import dig
from dumbbell.run.record import read_json
from dumbbell.studies.source import Missing, Source

UNDOS = ("TcpExtTCPFullUndo", "TcpExtTCPPartialUndo", "TcpExtTCPDSACKUndo", "TcpExtTCPLossUndo")


class DupAcks(NamedTuple):
    """Duplicate ACKs and fast retransmits of a transfer, with its duration and mean round-trip time (s)."""

    total: int
    fast_retransmits: int
    seconds: float
    rtt_s: float


class LongTransfer(Source):
    """One flow of a point; by default the first one over TCP."""

    def __init__(self, run_dir: Path | str, flow: str = "") -> None:
        super().__init__(run_dir)
        self._name = flow

    @property
    def flow(self) -> Flow:
        """The selected flow, or Missing."""
        flows = [flow for flow in self.planned_flows if flow.kind in ("tcp", "iperf3_tcp")]
        for flow in flows:
            if self._name in ("", flow.name):
                return flow
        raise Missing(f"This run has no TCP flow {self._name}; it has {', '.join(f.name for f in flows)}.")

    @cached_property
    def _tcp_info(self) -> pl.DataFrame:
        own = (pl.col("flow") == self.flow.name) & (pl.col("stream") == "0")
        rows = self.rows("tcp_info", *analysis.SAMPLED_FROM, where=own)
        if rows.filter(side="sender").is_empty():
            raise Missing(f"The sender's socket of {self.flow.name} was not sampled.")
        return rows

    @cached_property
    def samples(self) -> pl.DataFrame:
        """:func:`analysis.samples` of the flow's first stream; Missing if its sender was not sampled."""
        return analysis.samples(self._tcp_info)

    @cached_property
    def signals(self) -> pl.DataFrame:
        """:func:`analysis.signals`, from the best source that the run has."""
        try:
            own = (pl.col("flow") == self.flow.name) & (pl.col("stream") == "0")
            events = self.table("tcp_event", where=own)
        except Missing:
            events = None
        return analysis.signals(self._tcp_info, events)

    def told(self, *names: str) -> bool:
        """Whether the run has all these signals."""
        return all(self.signals[name].null_count() < self.signals.height for name in names)

    @property
    def iperf3_rates(self) -> dict[tuple[str, str], pl.DataFrame]:
        """Rates in iperf3's reports, ``[t_ns, y]`` in Mbit/s, by end and host, or Missing."""
        found = {}
        for end, host in (("client", self.flow.src_host), ("server", self.flow.dst_host)):
            file = self.dir / "raw" / host / "measurement" / f"iperf3-{self.flow.name}-{end}.json"
            sums = [interval["sum"] for interval in dig(read_json(file), "intervals") or []]
            if sums:
                middle = [(s["start"] + s["end"]) / 2 * 1e9 + self.flow.start_ns for s in sums]
                rates = [s["bits_per_second"] / 1e6 for s in sums]
                found[end, host] = pl.DataFrame({"t_ns": middle, "y": rates})
        if not found:
            raise Missing("Neither end of iperf3 left a report with intervals.")
        return found

    def windows_and_rates(self, which: str = "all") -> pl.DataFrame:
        """Window (``x``, MB) and rate since the sample before (``y``, Mbit/s) of each sample, or Missing.

        ``which`` selects samples: ``all``, ``with stalls``, ``without stalls`` or ``without signals``.
        """
        stalled, signalled = pl.col("SendStall") > 0, pl.col("CongestionSignals") > 0
        kept = {
            "all": pl.lit(True),
            "with stalls": stalled,
            "without stalls": ~stalled,
            "without signals": ~signalled,
        }
        both = self.samples.join(self.signals, on=["flow", "stream", "t_ns"])
        rows = both.filter(kept[which], pl.col("throughput_bps").is_not_null())
        rows = rows.select(x=pl.col("cwnd_bytes") / 1e6, y=pl.col("throughput_bps") / 1e6)
        if rows.is_empty():
            raise Missing(f"No sample is left: {which}.")
        return rows

    @property
    def min_rtt_ns(self) -> float:
        """The least round-trip time of all samples."""
        return self.samples["min_rtt_ns"].min()  # type: ignore[return-value]

    def total(self, name: str) -> pl.DataFrame:
        """The total of a signal since the start, ``[t_ns, y]``."""
        return self.signals.select("t_ns", y=pl.col(name).fill_null(0).cum_sum())

    def by_second(self, x: str, y: str) -> pl.DataFrame:
        """The totals of two signals in each second, ``[second, x, y]``."""
        second = pl.col("t_ns") // 10**9
        seconds = self.signals.group_by(second=second, maintain_order=True)
        return seconds.agg(x=pl.col(x).sum(), y=pl.col(y).sum())

    @property
    def duplicate_acks(self) -> DupAcks:
        """The number of duplicate ACKs received, if the run has it."""
        return DupAcks(
            int(self.signals["DupAcksIn"].sum()),
            int(self.signals["FastRetran"].sum()),
            int(self.signals["dt_ns"].sum()) / 1e9,
            float(self.samples["srtt_ns"].mean()) / 1e9,  # type: ignore[arg-type]
        )

    @property
    def taken_back(self) -> dict[str, int]:
        """Growth of the sending host's counters of undone window reductions, or Missing."""
        rows = self.table("snmp").filter(pl.col("host") == self.flow.src_host)
        counters = (*UNDOS, "TcpExtTCPSpuriousRTOs")
        return {name: int(rows.filter(name=name)["delta"].sum()) for name in counters}
