"""What a scenario says of its flows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dumbbell.model.quantities import Duration, Endpoint, Name, Rate, Strict


class _Flow(Strict):
    name: Name
    src: Endpoint = Field(alias="from", description="a host, or GROUP[INDEX]")
    dst: Endpoint = Field(alias="to", description="a host, or GROUP[INDEX]")
    start: Duration = Field(default=0, json_schema_extra={"default": "0s"})
    duration: Annotated[Duration, Field(gt=0)]
    streams: Annotated[int, Field(ge=1, le=128)] = 1


class TcpFlow(_Flow):
    """Bulk transfer over TCP by iperf3."""

    kind: Literal["iperf3_tcp"]
    congestion_control: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,15}$")] = "cubic"


class UdpFlow(_Flow):
    """Constant bit rate over UDP by iperf3."""

    kind: Literal["iperf3_udp"]
    rate: Rate = Field(description="payload rate of all streams together")
