"""ndt7: tests of M-Lab's NDT, version 7."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from dumbbell.facts.asked import Asked
from dumbbell.facts.check import Check, fact
from dumbbell.facts.columns import Columns
from dumbbell.kinds.found.base import End, Found, Tables
from dumbbell.kinds.found.command import COMMAND_FILES
from dumbbell.kinds.found.shared import tcp_columns
from dumbbell.plan import Flow
from dumbbell.plan.actions import PhaseHost
from dumbbell.run.content import Run, dig
from dumbbell.run.record import read_jsonl


class Ndt(Found):
    """The client reports the result of the test; its connections are sampled."""

    files: ClassVar[Mapping[str, tuple[str, ...]]] = COMMAND_FILES

    def __init__(self, direction: str) -> None:
        self.direction = direction  # the client's name for it

    def checks(self, of: Asked, flow: Flow) -> Iterator[Check]:
        """The client reported a result of the whole test."""
        file = of.run.raw(flow.client_host, "measurement", f"command-{flow.name}-client.txt")
        told = read_jsonl(file)
        throughput = dig(told[-1], self.direction, "Throughput", "Value") if told else None
        found = None if throughput is None else float(throughput) * 1e6
        reason = "" if found else "the client did not come to the end of its test"
        yield fact("NDT throughput", flow.name, None, found, unit="bps", ok=not reason, reason=reason)

    def columns(self, flow: Flow, side: str, part: PhaseHost) -> Iterator[Columns]:
        """The columns of the connections' samples."""
        if flow.name in part.sample.tcp:
            yield from tcp_columns(flow, side, to_last_row=True)

    def covered(self, run: Run, tables: Tables, flow: Flow) -> Iterator[End]:
        """The ends that are sampled."""
        measurement = run.point.phase("measurement")
        rows = tables["tcp_info"].filter(phase="measurement", flow=flow.name)
        for side, host in (("sender", flow.src_host), ("receiver", flow.dst_host)):
            if flow.name in measurement.hosts[host].sample.tcp:
                yield End(side, rows.filter(side=side), measurement.sampling_interval_ns)


FOUND: dict[str, Found] = {"ndt7_download": Ndt("Download"), "ndt7_upload": Ndt("Upload")}
