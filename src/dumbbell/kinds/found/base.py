"""What runs leave of flows of a kind: each kind overrides what it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check
from dumbbell.facts.columns import Columns
from dumbbell.facts.documents import Document
from dumbbell.plan import Flow, Phase
from dumbbell.plan.actions import PhaseHost
from dumbbell.run.content import Run

Tables = Mapping[str, pl.DataFrame]
Key = tuple[str, ...]
Counted = tuple[int | None, float | None]


@dataclass(frozen=True)
class Lost:
    """Packets that a flow sent and its receiver did not get, and how many of them may have been in flight."""

    packets: int
    under_way: int  # in flight at the end, when the receiver had stopped counting
    unseen: int  # sent after the last sample of the router's queues
    sent: int


@dataclass(frozen=True)
class End:
    """One end of a flow that writes rows: they have ``t_ns``, and one is due every ``each_ns``."""

    side: str
    rows: pl.DataFrame
    each_ns: int


class Found:
    """The results of a kind of flow. A kind overrides the methods that apply to it.

    The defaults are those of a kind that writes nothing: only the agent's events say that its programs ran.
    """

    # Names of the files that each action writes; {} stands for the flow's name.
    files: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Models of those files that are JSON, by file name without the flow's name.
    documents: ClassVar[Mapping[str, type[Document]]] = {}
    greeting_bytes: ClassVar[int | None] = None  # sent before the connection is held for its start

    def files_of(self, flow: Flow, action: str) -> Iterator[str]:
        """Names of the files that an action writes."""
        yield from (name.format(flow.name) for name in self.files.get(action, ()))

    def events(self, flow: Flow, action: str, told: list[Any]) -> Iterator[Key]:
        """The keys of the kind's own events of an action; ``told`` has all events of the host."""
        return iter(())

    def checks(self, of: Asked, flow: Flow) -> Iterator[Check]:
        """Checks that compare the flow with its plan."""
        return iter(())

    def reports(self, run: Run, phase: Phase, flow: Flow) -> Iterator[str] | None:
        """Contradictions within and between the reports of both ends; None if the kind has no reports."""
        return None

    def columns(self, flow: Flow, side: str, part: PhaseHost) -> Iterator[Columns]:
        """The columns that the rows of one end must have."""
        return iter(())

    def covered(self, run: Run, tables: Tables, flow: Flow) -> Iterator[End]:
        """The ends that must have rows from the flow's start to its end, other than sampled sockets."""
        return iter(())

    def lost(self, run: Run, tables: Tables, flow: Flow, last_ns: int) -> Lost | str:
        """The flow's losses, or why they are not known, or '' if the kind does not report any.

        ``last_ns`` is the time since t0 of the last sample of the router's queues.
        """
        return ""

    def dropped_by_hosts(self, run: Run, flow: Flow, host: str) -> Iterator[str]:
        """Packets that the flow's ends on a host dropped, one sentence each, if more than is allowed."""
        return iter(())

    def foreign(self, run: Run, flow: Flow, phase: Phase) -> int:
        """What the server got from others than the flow's client, in packets or connections."""
        return 0

    # tables

    def tables(self, run: Run, phase: Phase, flow: Flow) -> dict[str, pl.DataFrame]:
        """The kind's own tables, by name. OSError or ValueError: the files cannot be read."""
        return {}

    def intervals(self, run: Run, flow: Flow) -> list[tuple[int, int, int]] | None:
        """Bytes delivered as (begin, end, bytes), in ns since t0; None if a table has them."""
        return None

    def datagrams(self, run: Run, flow: Flow) -> list[tuple[int, int, int, int]] | None:
        """Datagrams as (begin, end, lost, received), in ns since t0; None if a table has them."""
        return None

    def ended(self, run: Run, flow: Flow) -> bool:
        """Whether the receiver, if it counts by itself, reported the end of the flow."""
        return False

    def congestion_controls(self, run: Run, tables: Tables, flow: Flow) -> set[str]:
        """All congestion controls that the kernel reported for the sender, in the agent's event or a sample.

        A connection that is held before its first data may not have its control yet: iperf3's cookie counts
        as a segment.
        """
        event = run.event("flow_congestion_control", flow=flow.name, host=flow.src_host)
        names = {str(event["name"])} if event and event.get("name") else set()
        rows = tables["tcp_info"].filter(pl.col("flow") == flow.name, pl.col("side") == "sender")
        if "data_segs_out" in rows.columns:
            rows = rows.filter(pl.col("data_segs_out") > 1)
        return names | (set(rows["congestion_control"].drop_nulls().unique()) - {""})

    def retransmitted(self, tables: Tables, flow: Flow) -> Counted:
        """Segments retransmitted in the measurement, and their share of all segments with data."""
        return None, None

    def lost_datagrams(self, run: Run, flow: Flow) -> Counted:
        """Datagrams lost in the measurement, and their share of all datagrams."""
        return None, None

    def summary(self, tables: Tables, flow: Flow) -> dict[str, Any]:
        """The kind's own columns of the table of flows."""
        return {}


def share(some: int, of: int) -> Counted:
    """A number and its share of a total; both None if the total is 0."""
    return (some, some / of) if of else (None, None)
