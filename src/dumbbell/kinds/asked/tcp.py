"""tcp: data over TCP between two agents, which enter the kernel rarely."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dumbbell.kinds.asked.base import Buffer, Given, Kind, PositiveDuration, TcpSocketFlow
from dumbbell.quantities import Size

HEADER_BYTES = 16  # that the data of each stream begins with


class TcpFlow(TcpSocketFlow):
    """Data over TCP by the agent itself: bulk, an amount, or what an application writes now and then.

    Both ends enter the kernel about once a second. After the end of the flow, what is in the kernel's buffers
    is still sent, for 5 s at the most.
    """

    kind: Literal["tcp"]
    bytes: Size | None = Field(
        default=None,
        description="amount to transfer, all streams together, which must have arrived before its end; "
        "default: as much as there is time for",
    )
    burst: Size | None = Field(
        default=None,
        description="what the application writes at once, all streams together, in place of a rate",
    )
    every: PositiveDuration | None = Field(default=None, description="with burst: between two of them")
    no_delay: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="TCP_NODELAY: the last segment of what is written does not wait for ACKs"
    )

    send_buffer: Buffer | None = Field(
        default=None,
        description="SO_SNDBUF of the sender alone, in place of socket_buffer; Linux doubles it, and does "
        "not tune it. How fast is a sender whose buffer is small?",
    )
    receive_buffer: Buffer | None = Field(
        default=None,
        description="SO_RCVBUF of the receiver alone, in place of socket_buffer; Linux doubles it, and does "
        "not tune it. The window is about what is given here: how fast is a flow with this window?",
    )

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        if (self.burst is None) != (self.every is None):
            raise ValueError("burst and every belong together")
        if self.burst is not None and self.rate is not None:
            raise ValueError("give rate, or burst and every, not both")
        if self.socket_buffer is not None and (self.send_buffer or self.receive_buffer):
            raise ValueError("give socket_buffer, or send_buffer and receive_buffer, not both")
        least = HEADER_BYTES * self.streams
        for key, size in (("bytes", self.bytes), ("burst", self.burst)):
            if size is not None and size < least:
                raise ValueError(
                    f"{key} is {size} bytes: the data of each stream begins with a header of {HEADER_BYTES} "
                    f"bytes, so give {least} or more"
                )
        return self

    @property
    def round_trips(self) -> int:
        """The streams connect at the same time, and send nothing before their start."""
        return 1

    def planned(self, given: Given) -> dict[str, Any]:
        """The options of the sockets, and how much the application writes when."""
        own = {
            "burst_bytes": self.burst,
            "every_ns": self.every,
            "no_delay": self.no_delay or None,
            "send_buffer_bytes": self.send_buffer,
            "receive_buffer_bytes": self.receive_buffer,
        }
        texts = {key: str(value).lower() for key, value in own.items() if value is not None}
        return super().planned(given) | {"bytes": self.bytes, "own": texts or None}


KINDS = (
    Kind(
        "tcp",
        TcpFlow,
        protocols=("tcp",),
        counted_by="tcp",
        server="tcp_receive",
        client="tcp_send",
    ),
)
