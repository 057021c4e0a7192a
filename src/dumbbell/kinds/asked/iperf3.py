"""iperf3: bulk transfers over TCP, and constant bit rates over UDP."""

from __future__ import annotations

import random
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dumbbell.kinds.asked.base import BaseFlow, CongestionControl, Dscp, Kind, PositiveDuration
from dumbbell.quantities import Rate, Size
from dumbbell.units import render_duration

GREETING_NS = 500_000_000  # iperf3's first UDP datagram leaves this long before the flow's start


class _Iperf3(BaseFlow):
    duration: PositiveDuration | None = Field(
        default=None, description="whole seconds; default: to the scenario's end"
    )
    streams: Annotated[int, Field(ge=1, le=128)] = Field(default=1, description="parallel connections")
    dscp: Dscp | None = Field(default=None, description="0 to 63, or a name such as ef, af41, cs1, le")
    socket_buffer: Annotated[Size, Field(le=2**31 - 1)] | None = Field(
        default=None, description="SO_SNDBUF and SO_RCVBUF at both ends; default: the kernel tunes them"
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

    def planned(self, start_ns: int, duration_ns: int, rng: random.Random) -> dict[str, Any]:
        """The options of the sockets."""
        return {"streams": self.streams, "dscp": self.dscp, "socket_buffer_bytes": self.socket_buffer}


class TcpFlow(_Iperf3):
    """Bulk transfer over TCP by iperf3, for a time. A transfer of a known size is a flow of kind http."""

    kind: Literal["iperf3_tcp"]
    congestion_control: CongestionControl = "cubic"
    rate: Rate | None = Field(
        default=None,
        description="payload that the application writes, all streams together; default: as fast as possible",
    )
    pacing: Rate | None = Field(
        default=None,
        description="SO_MAX_PACING_RATE of each stream: the kernel spaces its packets. It counts their "
        "payload; the `rate` of a path counts whole frames",
    )
    mss: Annotated[int, Field(ge=88, le=9216)] | None = Field(
        default=None, description="TCP_MAXSEG, in bytes; options of a segment are part of it"
    )

    @model_validator(mode="before")
    @classmethod
    def _no_bytes(cls, given: Any) -> Any:
        if isinstance(given, dict) and "bytes" in given:
            raise ValueError(
                "iperf3 ends a transfer of `bytes` when it has written them, and what has not arrived by "
                f"then never does: use kind http with count: 1 and size: {given['bytes']}"
            )
        return given

    @property
    def sampled(self) -> bool:
        """Each stream is sampled."""
        return True

    def planned(self, start_ns: int, duration_ns: int, rng: random.Random) -> dict[str, Any]:
        """The options of the sockets, and how the application writes."""
        return super().planned(start_ns, duration_ns, rng) | {
            "congestion_control": self.congestion_control,
            "rate_bps": self.rate,
            "pacing_bps": self.pacing,
            "mss_bytes": self.mss,
        }


class Iperf3UdpFlow(_Iperf3):
    """Constant bit rate over UDP by iperf3."""

    kind: Literal["iperf3_udp"]
    rate: Rate = Field(description="payload, all streams together")

    @property
    def greeting_ns(self) -> int:
        """The time of the datagram that the server replies to."""
        return GREETING_NS

    def planned(self, start_ns: int, duration_ns: int, rng: random.Random) -> dict[str, Any]:
        """The options of the sockets, and the rate."""
        return super().planned(start_ns, duration_ns, rng) | {"rate_bps": self.rate}


KINDS = (
    Kind(
        "iperf3_tcp",
        TcpFlow,
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
