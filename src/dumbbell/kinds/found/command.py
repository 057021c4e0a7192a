"""Programs of the experimenter: that they ran is in the agents' events."""

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
    """Its connection is sampled if it is asked."""

    files: ClassVar[Mapping[str, tuple[str, ...]]] = COMMAND_FILES

    def columns(self, flow: Flow, side: str, part: PhaseHost) -> Iterator[Columns]:
        """Of its connection."""
        if flow.name in part.sample.tcp:
            yield from tcp_columns(flow, side, to_last_row=True)


FOUND: dict[str, Found] = {"command": Command()}
