"""Every query of every Grafana dashboard, asked of a real InfluxDB that has runs and nights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import polars as pl
import pytest
from nightly.nights import KERNEL, night, rows
from nightly.test_told import TOLD
from synthetic import T0_UNIX_NS, write_run
from test_influxdb import free_port, influxd, influxd_2

from dumbbell.ingest import spool
from dumbbell.ingest.influx import Influx, InfluxTarget
from dumbbell.metrics.registry import METRICS
from dumbbell.nightly import tell
from dumbbell.nightly.history import History, Series
from dumbbell.nightly.identity import identity
from dumbbell.run.content import Run
from tools.dashboards import DASHBOARDS, FOLDER, Panel, text

PANELS = [(name, panel) for name, of in DASHBOARDS.items() for panel in of.panels]
VARIABLES = [(name, variable) for name, of in DASHBOARDS.items() for variable in of.variables]
SCENARIO = "two_flow_fairness"
DATAGRAMS = """
name: datagrams
title: One flow of datagrams
duration: 4s
path:
  forward: {rate: 20mbit, delay: 10ms, queue: {kind: pfifo, limit: 1bdp}}
flows:
  datagrams: {kind: udp, from: "senders[0]", to: "receivers[0]", rate: 5mbit}
"""


@dataclass(frozen=True)
class Stored:
    """An InfluxDB, and what it has: a run, and series of nights."""

    influx: Influx
    run: str
    series: list[Series]

    def asked(self, query: str, *, nights: bool) -> str:
        """A query as Grafana sends it, over the whole measurement or over all nights."""
        t0 = T0_UNIX_NS["measurement"]
        within = f"time >= {t0 - 10**10} AND time <= {t0 + 60 * 10**9}"
        if nights:
            within = "time >= '2026-01-01T00:00:00Z' AND time <= '2026-02-01T00:00:00Z'"
        chosen = {"timeFilter": within, "__interval": "1s", "run": self.run}
        for name, value in (chosen | {"scenario": SCENARIO, "label": ".*"}).items():
            query = query.replace(f"${name}", value)
        return query


@pytest.fixture(scope="module", params=["1.8", "2"])
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InfluxTarget]:
    folder = tmp_path_factory.mktemp("grafana")
    with ExitStack() as stack:
        if request.param == "2":
            yield stack.enter_context(influxd_2(folder))
            return
        stack.enter_context(influxd(folder, port := free_port(), tls=False))
        url = f"http://127.0.0.1:{port}"
        for query in ("CREATE USER admin WITH PASSWORD 'x' WITH ALL PRIVILEGES", "CREATE DATABASE dumbbell"):
            httpx.post(
                f"{url}/query", data={"q": query}, auth=("admin", "x"), trust_env=False
            ).raise_for_status()
        yield InfluxTarget(url, "dumbbell", "admin", "x")


@pytest.fixture(scope="module")
def stored(
    target: InfluxTarget, collected: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stored]:
    """The rows of a run, those of a flow of datagrams beside it, and two nights of that run."""
    folder, run = tmp_path_factory.mktemp("stored"), Run.open(collected)
    run.read_spools()
    (scenario := folder / "datagrams.yml").write_text(DATAGRAMS)
    write_run(folder / "datagrams", scenario)
    (beside := Run.open(folder / "datagrams")).read_spools()
    assert beside.id == run.id
    with closing(History(folder / "history.sqlite")) as history:
        for number in (1, 2):
            (run_dir := folder / str(number)).symlink_to(collected)
            assert history.record(night(number), run_dir) == []
            for metric in ("loss", "completion_time"):  # of flows that this run has not
                found = rows(night(number), 0.5 * number, metric=metric)
                history.add(night(number), identity(KERNEL, {}), SCENARIO, found)
        series = history.series()
    with Influx(target) as influx:
        influx.write(batch for path in run.spool_paths for batch in spool.batches(path))
        lines = [
            line for path in beside.spool_paths for of in spool.batches(path) for line in of.splitlines(True)
        ]
        influx.write(line for line in lines if line.startswith(b"udp,"))
        told = TOLD | {"findings": [{**TOLD["findings"][0], "scenario": SCENARIO}]}
        for _ in range(2):  # writing again changes nothing
            tell.store(told, series, target)
        yield Stored(influx, run.id, series)


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=[panel.title for _, panel in PANELS])
def test_a_panel_shows_what_the_run_has(name: str, panel: Panel, stored: Stored) -> None:
    (shown,) = [
        one
        for one in json.loads((FOLDER / f"{name}.json").read_text())["panels"]
        if one["title"] == panel.title
    ]
    (asked,) = shown["targets"]
    rows = stored.influx.query(stored.asked(asked["query"], nights=name == "nights"))
    assert rows
    tags = [word.removeprefix("$tag_") for word in asked["alias"].split() if word.startswith("$tag_")]
    assert all(tag in row for row in rows for tag in tags)


def panel_of(name: str, title: str) -> Panel:
    return next(panel for panel in DASHBOARDS[name].panels if panel.title == title)


def test_goodputs_are_those_of_the_run(stored: Stored, collected: Path) -> None:
    query = stored.asked(panel_of("run", "Goodput").query, nights=False)
    rows = [row for row in stored.influx.query(query) if row["flow"] == "flow1"]
    values = [value for row in rows for key, value in row.items() if key not in ("time", "flow", "stream")]
    told = pl.read_parquet(collected / "flows.parquet").filter(phase="measurement", name="flow1")
    assert sum(values) / len(values) == pytest.approx(told["goodput_bps"][0], rel=0.15)


def test_datagrams_are_received_at_their_rate(stored: Stored) -> None:
    rows = stored.influx.query(stored.asked(panel_of("run", "UDP received").query, nights=False))
    values = [value for row in rows for key, value in row.items() if key not in ("time", "flow")]
    assert {row["flow"] for row in rows} == {"datagrams"}
    assert max(values) == pytest.approx(5e6, rel=0.1)


def test_values_of_nights_are_those_of_the_history(stored: Stored) -> None:
    shown = {}
    for panel in DASHBOARDS["nights"].panels:
        if panel.kind == "timeseries":
            for row in stored.influx.query(stored.asked(panel.query, nights=True)):
                shown[row["metric"], row["subject"], row["time"]] = row["value"]
    known = {
        (one.key.metric, one.key.subject, tell.unix_ns(at)): value
        for one in stored.series
        for at, value in zip(one.nights, one.medians, strict=True)
    }
    assert shown == known
    assert {metric.partition(" p")[0] for metric, _, _ in shown} == {
        metric.name for metric in METRICS.values() if metric.compared
    }


def test_changes_are_annotations_of_nights(stored: Stored) -> None:
    (query,) = DASHBOARDS["nights"].annotations.values()
    (row,) = stored.influx.query(stored.asked(query, nights=True))
    assert row["time"] == tell.unix_ns(TOLD["findings"][0]["since"])
    assert row["title"] == "goodput new"
    assert "100 Mbit/s to 90 Mbit/s" in row["text"]
    assert (row["subject"], row["metric"]) == ("tcp", "goodput")


@pytest.mark.parametrize(("name", "variable"), VARIABLES)
def test_what_can_be_chosen(name: str, variable: str, stored: Stored) -> None:
    query = stored.asked(DASHBOARDS[name].variables[variable], nights=name == "nights")
    found = {row["value"] for row in stored.influx.query(query)}
    labels = {one.label for one in stored.series}
    assert found == {"run": {stored.run}, "scenario": {SCENARIO}, "label": labels}[variable]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_files_are_made_from_the_panels(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == text(name), "make docs writes it again"
