"""Why TCP retransmitted segments at a point."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import polars as pl

from dumbbell import analysis
from dumbbell.plan import Flow, Way
from dumbbell.plan.actions import CaptureAction
from dumbbell.run.content import dig
from dumbbell.run.record import read_json
from dumbbell.studies.source import Missing, Source

UDP = ("udp", "iperf3_udp")
QDISC = {  # counters of the qdisc rapid, and their meanings
    "retrans": "sent again",
    "jumped": "of them ahead of others",
    "ts_regressions": "older timestamp than one before",
    "restamped": "timestamps written anew",
    "maxq": "most that waited",
    "drops": "dropped",
}


class Retransmissions(Source):
    """Counters and captures of one point with TCP, with or without UDP."""

    @property
    def tcp(self) -> list[Flow]:
        """The flows of TCP, or Missing."""
        flows = [flow for flow in self.planned_flows if flow.kind not in UDP]
        if not flows:
            raise Missing("There is no TCP flow whose hosts would count.")
        return flows

    @property
    def ways(self) -> set[Way]:
        """The directions in which TCP sends data, or Missing: acknowledgments are never retransmitted."""
        return {flow.direction for flow in self.tcp}

    def dropped(self) -> pl.DataFrame:
        """:func:`analysis.queue` of the qdiscs that drop packets in those directions, or Missing."""
        if self.plan.path is None:
            raise Missing("this run has no path.")
        kinds = {*(way.queue.kind for _, way in self.plan.path.ways), "netem"}
        rows = self.table("qdisc").filter(pl.col("kind").is_in(kinds))
        parts = []
        for (host,), own in rows.group_by("host"):  # including the senders' own
            if of_ways := dig(read_json(self.dir / f"raw/{host}/state.json"), "path", "devices"):
                devices = {device for way in self.ways for device in of_ways[way].values()}
                parts.append(own.filter(pl.col("dev").is_in(devices)))
        if not parts:
            raise Missing("no router's state.json tells which of its devices are of which direction.")
        return analysis.queue(pl.concat(parts))

    @property
    def dropped_udp(self) -> int:
        """Dropped datagrams, as their receivers counted; Missing if one does not report them."""
        flows = [flow for flow in self.planned_flows if flow.direction in self.ways]
        if silent := [flow.name for flow in flows if flow.kind == "iperf3_udp"]:
            raise Missing(f"Of {', '.join(silent)} it is not known how much the path dropped.")
        of_them = pl.col("flow").is_in([flow.name for flow in flows])
        rows = self.rows("udp").filter(of_them, side="receiver")
        lost = rows.group_by("flow").agg(pl.col("lost_packets").max())
        return int(lost["lost_packets"].sum())

    @cached_property
    def budget(self) -> analysis.Budget:
        """The budget of the whole measurement, over all TCP of the hosts at the flows' ends; or Missing."""
        senders = {flow.src_host for flow in self.tcp}
        receivers = {flow.dst_host for flow in self.tcp}
        snmp = self.table("snmp")

        def grown(name: str, hosts: set[str]) -> int:
            return int(snmp.filter(pl.col("host").is_in(hosts), name=name)["delta"].sum())

        return analysis.Budget(
            retransmits=grown("TcpRetransSegs", senders),
            drops=int(self.dropped()["dropped_packets"].sum()) - self.dropped_udp,
            rejects=grown("TcpExtPAWSEstab", receivers),
            duplicates=grown("TcpExtTCPDSACKRecvSegs", senders),
        )

    def captures(self) -> Iterator[tuple[str, Path]]:
        """The name and file of each capture that the plan asks for."""
        for host, own in self.plan.phase("measurement").hosts.items():
            for action in own.actions:
                if isinstance(action, CaptureAction):
                    file = f"raw/{host}/measurement/capture-{action.name}.pcap"
                    yield f"{host} {action.name}", self.dir / file

    @property
    def senders_queues(self) -> pl.DataFrame:
        """Growth of the counters of the qdisc ``rapid``, ``[host, dev, *QDISC]``, by host, or Missing."""
        own = self.rows("qdisc").filter(kind="rapid")
        if own.is_empty():
            return own
        grown = pl.col(*QDISC).last() - pl.col(*QDISC).first()
        return own.group_by("host", "dev").agg(grown).sort("host")
