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
    """What a flow sent and its receiver did not get, and how much of that may have been on its way."""

    packets: int
    under_way: int  # at the end, when the receiver no longer looked
    unseen: int  # sent after the router's queues were sampled last
    sent: int


@dataclass(frozen=True)
class End:
    """One end of a flow that tells of it: rows with ``t_ns``, due once in ``each_ns``."""

    side: str
    rows: pl.DataFrame
    each_ns: int


class Found:
    """Of a kind of which nothing is told but that its programs ran."""

    # Names of the files that an action leaves, in which {} is the flow's name.
    files: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # What is in those that are JSON, by their name without the flow's.
    documents: ClassVar[Mapping[str, type[Document]]] = {}
    greeting_bytes: ClassVar[int | None] = None  # that a connection has sent when it is held before its start

    def files_of(self, flow: Flow, action: str) -> Iterator[str]:
        """Names of the files that an end leaves, by its action."""
        yield from (name.format(flow.name) for name in self.files.get(action, ()))

    def events(self, flow: Flow, action: str, told: list[Any]) -> Iterator[Key]:
        """What tells its own events of an action from others; ``told`` has all events of the host."""
        return iter(())

    def checks(self, of: Asked, flow: Flow) -> Iterator[Check]:
        """What its plan asked, beside what was found."""
        return iter(())

    def reports(self, run: Run, phase: Phase, flow: Flow) -> Iterator[str] | None:
        """Where the reports of its ends disagree, each within and with each other; None if it has none."""
        return None

    def columns(self, flow: Flow, side: str, part: PhaseHost) -> Iterator[Columns]:
        """What rows of one of its ends say."""
        return iter(())

    def covered(self, run: Run, tables: Tables, flow: Flow) -> Iterator[End]:
        """Its ends that tell of it from its start to its end, and are not judged as sampled."""
        return iter(())

    def lost(self, run: Run, tables: Tables, flow: Flow, last_ns: int) -> Lost | str:
        """What it lost; why that is not known; '' of kinds of which nothing tells.

        The router's queues were sampled until ``last_ns`` since t0.
        """
        return ""

    def dropped_by_hosts(self, run: Run, flow: Flow, host: str) -> Iterator[str]:
        """What its ends on a host dropped, if that is more than is allowed."""
        return iter(())

    def foreign(self, run: Run, flow: Flow, phase: Phase) -> int:
        """What its server got that was not its client's, and counted apart."""
        return 0

    # tables

    def tables(self, run: Run, phase: Phase, flow: Flow) -> dict[str, pl.DataFrame]:
        """Rows of tables of its own, by the table's name. OSError or ValueError: its files cannot be read."""
        return {}

    def intervals(self, run: Run, flow: Flow) -> list[tuple[int, int, int]] | None:
        """What it delivered, if that is in no table: begin and end since t0 in ns, and bytes."""
        return None

    def ended(self, run: Run, flow: Flow) -> bool:
        """Whether its receiver, which counts by itself, has said that nothing more will come."""
        return False

    def congestion_controls(self, run: Run, tables: Tables, flow: Flow) -> set[str]:
        """All that the kernel reported for its sender, in the agent's event or in a sample.

        A client that is held before its first byte may not have chosen yet: iperf3's cookie is a segment.
        """
        event = run.event("flow_congestion_control", flow=flow.name, host=flow.src_host)
        names = {str(event["name"])} if event and event.get("name") else set()
        rows = tables["tcp_info"].filter(pl.col("flow") == flow.name, pl.col("side") == "sender")
        if "data_segs_out" in rows.columns:
            rows = rows.filter(pl.col("data_segs_out") > 1)
        return names | (set(rows["congestion_control"].drop_nulls().unique()) - {""})

    def retransmitted(self, tables: Tables, flow: Flow) -> Counted:
        """Segments that it sent again in the measurement, and their share of all with data."""
        return None, None

    def lost_datagrams(self, run: Run, flow: Flow) -> Counted:
        """Datagrams that it lost in the measurement, and their share of all."""
        return None, None

    def summary(self, tables: Tables, flow: Flow) -> dict[str, Any]:
        """Its own columns of the table of flows."""
        return {}


def share(some: int, of: int) -> Counted:
    """A number, and its share of all; None of nothing."""
    return (some, some / of) if of else (None, None)
