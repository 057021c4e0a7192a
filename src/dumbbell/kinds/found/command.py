"""command: programs that the experimenter supplies. The agents' events say whether they ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from dumbbell.facts.columns import Columns
from dumbbell.kinds.found.base import Found
from dumbbell.kinds.found.shared import tcp_columns
from dumbbell.plan import Flow
from dumbbell.plan.actions import PhaseHost

COMMAND_FILES = {
    "command_client": ("command-{}-client.txt",),
    "command_server": ("command-{}-server.txt",),
}


class Command(Found):
    """The connection is sampled if the scenario asks for it."""

    files: ClassVar[Mapping[str, tuple[str, ...]]] = COMMAND_FILES

    def columns(self, flow: Flow, side: str, part: PhaseHost) -> Iterator[Columns]:
        """The columns of the connection's samples."""
        if flow.name in part.sample.tcp:
            yield from tcp_columns(flow, side, to_last_row=True)


FOUND: dict[str, Found] = {"command": Command()}
