"""command: programs that the experimenter supplies."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from dumbbell.kinds.asked.base import BaseFlow, Kind, PlannedFlow, Programs
from dumbbell.words import listed

_PLACEHOLDER = re.compile(r"\{([a-z_]*)\}")
_KNOWN = ("src", "dst", "server_port", "client_port")


def _placeholders(word: str) -> str:
    for name in _PLACEHOLDER.findall(word):
        if name not in _KNOWN:
            raise ValueError(f"{{{name}}} is none of {listed(_KNOWN)}")
    return word


Word = Annotated[str, Field(min_length=1), AfterValidator(_placeholders)]


class CommandFlow(BaseFlow):
    """A program of yours: a client on `from`, a server on `to` if it needs one.

    In their words `{src}`, `{dst}`, `{server_port}` and `{client_port}` stand for addresses and ports that no
    other flow has. They run as the agent's user, without a shell. When the time of one is over, all processes
    that it has started end. To `{server_port}` of the server packets from `{src}` come alone.
    """

    kind: Literal["command"]
    client: Annotated[list[Word], Field(min_length=1)] = Field(
        description="program and arguments, started at `start`",
        examples=[["nc", "-N", "{dst}", "{server_port}"]],
    )
    server: Annotated[list[Word], Field(min_length=1)] | None = Field(
        default=None, description="program and arguments, started before t0 and ended after the phase"
    )
    sample: bool = Field(
        default=False,
        description="sample the connection from `{src}:{client_port}` to `{dst}:{server_port}` at both ends",
    )

    @property
    def sampled(self) -> bool:
        """If the scenario asks for it."""
        return self.sample

    @property
    def why_no_delay(self) -> str:
        """Its ports are not known."""
        if any("{server_port}" in word for word in self.client):
            return ""
        return "the router tells the flow by its {server_port}, which `client` does not name"

    def programs(self, flow: PlannedFlow) -> Programs:
        """The command lines of both ends, with addresses and ports filled in."""

        def filled(words: list[str]) -> list[str]:
            return [_PLACEHOLDER.sub(lambda match: str(getattr(flow, match[1])), word) for word in words]

        return Programs(filled(self.client), None if self.server is None else filled(self.server))


KINDS = (Kind("command", CommandFlow, protocols=("tcp", "udp"), counted_by=None),)
