"""Calibration: measurements of the idle path before the flows run, one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from dumbbell.plan.actions import Action, PingAction, TcpListenAction, TcpPingAction
from dumbbell.plan.document import SERVER_LEAD_NS, Flow
from dumbbell.plan.path import PlannedPath, Way, datagram_headers_bytes
from dumbbell.plan.ports import FIRST_CLIENT_PORT, FIRST_SERVER_PORT, Ports

PING_COUNT = 31  # the first also waits for ARP and is dropped
PING_INTERVAL_NS = 50_000_000
PING_NS = PING_COUNT * PING_INTERVAL_NS
PROBE_BYTES = 64  # payload of a datagram that measures a delay
RATE_LOAD = 1.1  # offered load over the bottleneck's rate: fills its queue at little cost
RATE_NS = 4_000_000_000
EMPTIED_NS = RATE_NS // 2  # until which a bottleneck's burst is used up
SETTLE_NS = 500_000_000  # for the last replies of a step, and until its queue is empty

Probe = Literal["delayed", "plain"]  # to a port that has its own delay, and to one without


@dataclass(frozen=True)
class Pair:
    """Two hosts that exchange data, and the direction of the data."""

    src_host: str
    dst_host: str
    src: str
    dst: str
    direction: Way


def rate_name(direction: Way) -> str:
    """The name of the flow that fills the path in this direction."""
    return "calibration_rate" if direction == "forward" else "calibration_rate_reverse"


def probe_name(flow: Flow, probe: Probe) -> str:
    """The name of a probe of a flow's own delay."""
    return f"{flow.name}.{probe}"


class Calibration:
    """Makes the calibration: its flows, its other actions by host, and its duration.

    First the idle RTT of each pair; then the delay of each flow that has its own, with two probes at a time;
    then the rate of the path in each direction that data takes.
    """

    def __init__(
        self, path: PlannedPath | None, pairs: Sequence[Pair], measured: Sequence[Flow], ports: Ports
    ) -> None:
        self.flows: list[Flow] = []
        self.actions: list[tuple[str, Action]] = []
        self.duration_ns = 0
        self._ports = ports
        for pair in pairs:
            self._idle_rtt(pair)
        delayed = [flow for flow in measured if flow.delay_us]
        for flow in delayed:  # others on their ports would be delayed
            ports.take(flow.server_host, flow.server_port)
        for flow in delayed:
            self._own_delay(flow)
        if path is not None:
            ways: dict[Way, Pair] = {}
            for pair in pairs:
                ways.setdefault(pair.direction, pair)
            for pair in ways.values():
                self._rate(path, pair)

    def _idle_rtt(self, pair: Pair) -> None:
        ping = PingAction(
            at_ns=self.duration_ns,
            kind="ping",
            name=f"{pair.src_host}-{pair.dst_host}",
            dst=pair.dst,
            count=PING_COUNT,
            interval_ns=PING_INTERVAL_NS,
        )
        self.actions.append((pair.src_host, ping))
        self.duration_ns += PING_NS + SETTLE_NS

    def _own_delay(self, flow: Flow) -> None:
        """Compare packets to the flow's port with packets to another port of the same hosts."""
        pair = Pair(flow.src_host, flow.dst_host, flow.src, flow.dst, flow.direction)
        other_port = self._server_port(flow.server_host)
        ports: dict[Probe, int] = {"delayed": flow.server_port, "plain": other_port}
        start_ns = self.duration_ns
        for probe, port in ports.items():
            name = probe_name(flow, probe)
            if "tcp" in flow.protocols:
                ping = TcpPingAction(
                    at_ns=start_ns,
                    kind="tcp_ping",
                    name=name,
                    dst=flow.server,
                    dst_port=port,
                    count=PING_COUNT,
                    interval_ns=PING_INTERVAL_NS,
                )
                listen = TcpListenAction(
                    at_ns=-SERVER_LEAD_NS,
                    kind="tcp_listen",
                    name=name,
                    dst=flow.server,
                    dst_port=port,
                    src=flow.client,
                )
                self.actions += [(flow.client_host, ping), (flow.server_host, listen)]
            if "udp" in flow.protocols:
                rate_bps = 8 * PROBE_BYTES * 10**9 // PING_INTERVAL_NS
                self._datagrams(
                    name,
                    pair,
                    port,
                    start_ns=start_ns,
                    duration_ns=PING_NS,
                    rate_bps=rate_bps,
                    payload_bytes=PROBE_BYTES,
                )
            start_ns += PING_INTERVAL_NS // 2  # alternating
        self.duration_ns += PING_NS + SETTLE_NS

    def _rate(self, path: PlannedPath, pair: Pair) -> None:
        """More full-size datagrams than the bottleneck can send, also when it begins with a full bucket."""
        payload_bytes = path.packet_bytes - datagram_headers_bytes(pair.src)
        way = path.way(pair.direction)
        frames_bps = RATE_LOAD * way.rate_bps + 8e9 * (way.burst_bytes or 0) / EMPTIED_NS
        rate_bps = math.ceil(frames_bps * payload_bytes / path.packet_bytes)
        port = self._server_port(pair.dst_host)
        self._datagrams(
            rate_name(pair.direction),
            pair,
            port,
            start_ns=self.duration_ns,
            duration_ns=RATE_NS,
            rate_bps=rate_bps,
            payload_bytes=payload_bytes,
        )
        self.duration_ns += RATE_NS + SETTLE_NS

    def _datagrams(
        self,
        name: str,
        pair: Pair,
        server_port: int,
        *,
        start_ns: int,
        duration_ns: int,
        rate_bps: int,
        payload_bytes: int,
    ) -> None:
        flow = Flow(
            name=name,
            kind="udp",
            **asdict(pair),
            server_port=server_port,
            client_port=self._taken(pair.src_host, FIRST_CLIENT_PORT),
            streams=1,
            start_ns=start_ns,
            duration_ns=duration_ns,
            congestion_control=None,
            rate_bps=rate_bps,
            payload_bytes=payload_bytes,
        )
        self.flows.append(flow)

    def _server_port(self, host: str) -> int:
        return self._taken(host, FIRST_SERVER_PORT)

    def _taken(self, host: str, first: int) -> int:
        port = self._ports.take(host, first)
        assert port is not None  # the flows to be measured needed more of them
        return port
