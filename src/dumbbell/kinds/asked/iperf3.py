"""iperf3: bulk transfers over TCP, and constant bit rates over UDP."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from dumbbell.kinds.asked.base import Given, Kind, PositiveDuration, SocketFlow, TcpSocketFlow
from dumbbell.quantities import Rate
from dumbbell.units import render_duration

GREETING_NS = 500_000_000  # iperf3's first UDP datagram leaves this long before the flow's start


class _Iperf3(SocketFlow):
    duration: PositiveDuration | None = Field(
        default=None, description="whole seconds; default: to the scenario's end"
    )

    @property
    def round_trips(self) -> int:
        """One per stream (they connect one after the other), and one for the server's reply to the last."""
        return self.streams + 1

    def wrong_duration(self, duration_ns: int) -> str:
        """iperf3 takes whole seconds only."""
        if duration_ns % 10**9 == 0:
            return ""
        left = render_duration(duration_ns)
        return f"iperf3 runs for a whole number of seconds, not {left}: give it another duration"


class Iperf3TcpFlow(_Iperf3, TcpSocketFlow):
    """Bulk transfer over TCP by iperf3, for a time. A transfer of a known size is a flow of kind tcp."""

    kind: Literal["iperf3_tcp"]

    @model_validator(mode="before")
    @classmethod
    def _no_bytes(cls, given: Any) -> Any:
        if isinstance(given, dict) and "bytes" in given:
            raise ValueError(
                "iperf3 ends a transfer of `bytes` when it has written them, and what has not arrived by "
                "then never does: use kind tcp"
            )
        return given


class Iperf3UdpFlow(_Iperf3):
    """Constant bit rate over UDP by iperf3."""

    kind: Literal["iperf3_udp"]
    rate: Rate = Field(description="payload, all streams together")

    @property
    def greeting_ns(self) -> int:
        """The time of the datagram that the server replies to."""
        return GREETING_NS

    def planned(self, given: Given) -> dict[str, Any]:
        """The options of the sockets, and the rate."""
        return super().planned(given) | {"rate_bps": self.rate}


KINDS = (
    Kind(
        "iperf3_tcp",
        Iperf3TcpFlow,
        protocols=("tcp",),
        counted_by="tcp",
        server="iperf3_server",
        client="iperf3_client",
    ),
    Kind(
        "iperf3_udp",
        Iperf3UdpFlow,
        protocols=("udp",),
        counted_by="udp",
        server="iperf3_server",
        client="iperf3_client",
    ),
)
