"""Runs as InfluxDB has them, while they last and after."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import polars as pl

from dumbbell.ingest import live
from dumbbell.ingest.influx import Influx, InfluxError, InfluxTarget
from dumbbell.report import figures, html
from dumbbell.report.parts import Missing, part, show
from dumbbell.units import human

LISTED = 20  # most runs of the table
PICKED = 8  # most runs among which the figure lets choose
CONNECTIONS = 40  # most rows of the table of flows


def asking(ask: Callable[..., pl.DataFrame]) -> Callable[..., pl.DataFrame]:
    """What InfluxDB answers; why it does not is Missing."""

    @functools.wraps(ask)
    def asked(*arguments: object) -> pl.DataFrame:
        try:
            return ask(*arguments)
        except InfluxError as error:
            raise Missing(f"{error}.") from None

    return asked


class Explore:
    """Of the InfluxDB of an inventory; ``run`` is the one to look at, by default the one sampled last.

    Every method asks anew, and says so where InfluxDB cannot be asked.
    """

    def __init__(self, inventory: Path | str, run: str = "", minutes: float = 5) -> None:
        self._inventory, self._run, self._minutes = inventory, run, minutes

    @functools.cached_property
    def influx(self) -> Influx:
        """A connection, of the credentials that Ansible knows."""
        return Influx(InfluxTarget.of_inventory(self._inventory))

    @asking
    def found(self) -> pl.DataFrame:
        """:func:`live.runs`, the one to look at first; Missing if there is none."""
        found = live.runs(self.influx)
        if found.is_empty():
            raise Missing(f"InfluxDB at {self.influx.target.url} has samples of no run.")
        if self._run not in ("", *found["run"]):
            known = ", ".join(found["run"].head(LISTED))
            raise Missing(f"InfluxDB has no run {self._run}; it has {known}.")
        return found.sort(pl.col("run") == self._run, descending=True, maintain_order=True)

    @asking
    def flows_of(self, run: str) -> pl.DataFrame:
        """:func:`live.flows`."""
        return live.flows(self.influx, run)

    @asking
    def series_of(self, run: str, until_ns: int) -> pl.DataFrame:
        """:func:`live.series` of the minutes until a time."""
        return live.series(self.influx, run, until_ns - round(self._minutes * 60e9), until_ns)

    @part
    def runs(self) -> str:
        """The runs that there are."""
        found = self.found()
        rows = [
            html.row(
                [
                    f'<span class="mono">{escape(row["run"])}</span>',
                    str(row["flows"]),
                    _utc(row["begin_ns"]),
                    _utc(row["end_ns"]),
                ]
            )
            for row in found.head(LISTED).iter_rows(named=True)
        ]
        more = f" {found.height - LISTED} more are older." * (found.height > LISTED)
        return (
            f"{html.table(('run', 'flows', 'first sample', 'last sample'), rows)}"
            f'<p class="note">In {escape(self.influx.target.url)}, by the clocks of the hosts, UTC.{more}</p>'
        )

    @part
    def flows(self) -> str:
        """What was last seen of each flow of the run."""
        run = self.found()["run"][0]
        found = self.flows_of(run)
        rows = [
            html.row(
                [
                    escape(row["flow"]),
                    escape(row["stream"] or "-"),
                    escape(row["phase"]),
                    escape(row["host"]),
                    escape(row["congestion_control"] or "-"),
                    human(row["snd_cwnd"]),
                    human(None if row["srtt_us"] is None else 1000 * row["srtt_us"], "ns"),
                    human(row["total_retrans"]),
                    human(row["received_packets"]),
                    human(row["lost_packets"]),
                    human(row["fetches"]),
                ]
            )
            for row in found.head(CONNECTIONS).iter_rows(named=True)
        ]
        head = ("flow", "stream", "phase", "seen on", "TCP", "cwnd", "RTT", "sent again")
        head_datagrams = ("datagrams", "lost", "fetches done")
        more = f" {found.height - CONNECTIONS} more are not listed." * (found.height > CONNECTIONS)
        return (
            f'<p>Run <span class="mono">{escape(run)}</span></p>{html.table((*head, *head_datagrams), rows)}'
            f'<p class="note">As last sampled. Windows are in segments.{more}</p>'
        )

    @part
    def series(self) -> str:
        """Goodput, window and RTT of the last minutes of a run, which can be picked in the figure."""
        runs = self.found().head(PICKED)
        found = {
            row["run"]: self.series_of(row["run"], row["end_ns"]).with_columns(
                before_s=(pl.col("unix_ns") - row["end_ns"]) / 1e9
            )
            for row in runs.iter_rows(named=True)
        }
        return show(
            figures.of_runs(found),
            f"The last {self._minutes:g} minutes of samples of each run; the menu picks one of the "
            f"{len(found)} that were sampled last. Goodput is what the sender saw acknowledged, what a "
            "receiver of datagrams got, or the bytes of fetches by when they began. A look, no result: those "
            "are in run directories.",
        )


def _utc(unix_ns: int) -> str:
    return f"{datetime.fromtimestamp(unix_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}"
