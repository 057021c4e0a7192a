"""Runs in InfluxDB, while they last and after."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import polars as pl
from markupsafe import Markup

from dumbbell.ingest import live
from dumbbell.ingest.influx import Influx, InfluxError, InfluxTarget
from dumbbell.report import figures, html
from dumbbell.report.parts import part
from dumbbell.studies.source import Missing
from dumbbell.units import human

LISTED = 20  # most runs in the table
PICKED = 8  # most runs in the figure's menu
CONNECTIONS = 40  # most rows in the table of flows

fill = partial(html.part, "explore.html")


def asking(ask: Callable[..., pl.DataFrame]) -> Callable[..., pl.DataFrame]:
    """A query of InfluxDB whose failure raises Missing."""

    @functools.wraps(ask)
    def asked(*arguments: object) -> pl.DataFrame:
        try:
            return ask(*arguments)
        except InfluxError as error:
            raise Missing(f"{error}.") from None

    return asked


class Explore:
    """Parts about runs in an inventory's InfluxDB; ``run`` is the shown one, by default the latest.

    Every method queries again, and reports if InfluxDB does not answer.
    """

    def __init__(self, inventory: Path | str, run: str = "", minutes: float = 5) -> None:
        self._inventory, self._run, self._minutes = inventory, run, minutes

    @functools.cached_property
    def influx(self) -> Influx:
        """The connection, with the credentials that Ansible has."""
        return Influx(InfluxTarget.of_inventory(self._inventory))

    @asking
    def found(self) -> pl.DataFrame:
        """:func:`live.runs`, the shown run first; Missing if there is none."""
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
        """:func:`live.series` of the minutes before a time."""
        return live.series(self.influx, run, until_ns - round(self._minutes * 60e9), until_ns)

    @part
    def runs(self) -> Markup:
        """The runs in InfluxDB."""
        found = self.found()
        shown = [
            (row["run"], str(row["flows"]), _utc(row["begin_ns"]), _utc(row["end_ns"]))
            for row in found.head(LISTED).iter_rows(named=True)
        ]
        return fill("runs", runs=shown, url=self.influx.target.url, older=found.height - LISTED)

    @part
    def flows(self) -> Markup:
        """The last values of each flow of the run."""
        run = self.found()["run"][0]
        found = self.flows_of(run)
        rows = [
            [
                row["flow"],
                row["stream"] or "-",
                row["phase"],
                row["host"],
                row["congestion_control"] or "-",
                human(row["snd_cwnd"]),
                human(None if row["srtt_us"] is None else 1000 * row["srtt_us"], "ns"),
                human(row["total_retrans"]),
                human(row["received_packets"]),
                human(row["lost_packets"]),
                human(row["fetches"]),
            ]
            for row in found.head(CONNECTIONS).iter_rows(named=True)
        ]
        head = ("flow", "stream", "phase", "seen on", "TCP", "cwnd", "RTT", "sent again")
        datagrams = ("datagrams", "lost", "fetches done")
        return fill("flows", run=run, head=(*head, *datagrams), rows=rows, more=found.height - CONNECTIONS)

    @part
    def series(self) -> Markup:
        """Goodput, window and RTT of the last minutes of a run, which the figure's menu selects."""
        runs = self.found().head(PICKED)
        found = {
            row["run"]: self.series_of(row["run"], row["end_ns"]).with_columns(
                before_s=(pl.col("unix_ns") - row["end_ns"]) / 1e9
            )
            for row in runs.iter_rows(named=True)
        }
        return fill("series", drawn=figures.of_runs(found), minutes=self._minutes, runs=len(found))


def _utc(unix_ns: int) -> str:
    return f"{datetime.fromtimestamp(unix_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}"
