"""Every query of every Grafana panel, asked of a real InfluxDB that has a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import polars as pl
import pytest
from synthetic import T0_UNIX_NS, write_run
from test_influxdb import free_port, influxd

from dumbbell.ingest import spool
from dumbbell.ingest.influx import Influx, InfluxTarget
from dumbbell.run.content import Run
from tools.dashboards import DASHBOARDS, FOLDER, RUNS, Panel, text

PANELS = [(name, panel) for name, (_, panels) in DASHBOARDS.items() for panel in panels]
DATAGRAMS = """
name: datagrams
title: One flow of datagrams
duration: 4s
path:
  forward: {rate: 20mbit, delay: 10ms, queue: {kind: pfifo, limit: 1bdp}}
flows:
  datagrams: {kind: udp, from: "senders[0]", to: "receivers[0]", rate: 5mbit}
"""


@pytest.fixture(scope="module")
def stored(collected: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Influx, str]]:
    """InfluxDB 1.8 with the rows of a run and those of a flow of datagrams beside it, and the run's id."""
    folder, run = tmp_path_factory.mktemp("grafana"), Run.open(collected)
    run.read_spools()
    (scenario := folder / "datagrams.yml").write_text(DATAGRAMS)
    write_run(folder / "datagrams", scenario)
    (beside := Run.open(folder / "datagrams")).read_spools()
    assert beside.id == run.id
    with influxd(folder, port := free_port(), tls=False):
        url = f"http://127.0.0.1:{port}"
        for query in ("CREATE USER admin WITH PASSWORD 'x' WITH ALL PRIVILEGES", "CREATE DATABASE dumbbell"):
            httpx.post(
                f"{url}/query", data={"q": query}, auth=("admin", "x"), trust_env=False
            ).raise_for_status()
        with Influx(InfluxTarget(url, "dumbbell", "admin", "x")) as influx:
            influx.write(batch for path in run.spool_paths for batch in spool.batches(path))
            lines = [
                line
                for path in beside.spool_paths
                for of in spool.batches(path)
                for line in of.splitlines(True)
            ]
            influx.write(line for line in lines if line.startswith(b"udp,"))
            yield influx, run.id


def asked(query: str, run: str, interval: str = "1s") -> str:
    """A query as Grafana sends it, over the whole measurement."""
    t0 = T0_UNIX_NS["measurement"]
    within = f"time >= {t0 - 10**10} AND time <= {t0 + 60 * 10**9}"
    return query.replace("$timeFilter", within).replace("$__interval", interval).replace("$run", run)


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=[panel.title for _, panel in PANELS])
def test_a_panel_shows_what_the_run_has(name: str, panel: Panel, stored: tuple[Influx, str]) -> None:
    influx, run = stored
    (shown,) = [
        one
        for one in json.loads((FOLDER / f"{name}.json").read_text())["panels"]
        if one["title"] == panel.title
    ]
    (target,) = shown["targets"]
    rows = influx.query(asked(target["query"], run))
    assert rows
    tags = [word.removeprefix("$tag_") for word in target["alias"].split() if word.startswith("$tag_")]
    assert all(tag in row for row in rows for tag in tags)


def test_goodputs_are_those_of_the_run(stored: tuple[Influx, str], collected: Path) -> None:
    influx, run = stored
    goodput = next(panel for _, panel in PANELS if panel.title == "Goodput")
    rows = [row for row in influx.query(asked(goodput.query, run)) if row["flow"] == "flow1"]
    values = [value for row in rows for key, value in row.items() if key not in ("time", "flow", "stream")]
    told = pl.read_parquet(collected / "flows.parquet").filter(phase="measurement", name="flow1")
    assert sum(values) / len(values) == pytest.approx(told["goodput_bps"][0], rel=0.15)


def test_datagrams_are_received_at_their_rate(stored: tuple[Influx, str]) -> None:
    influx, run = stored
    received = next(panel for _, panel in PANELS if panel.title == "UDP received")
    rows = influx.query(asked(received.query, run))
    values = [value for row in rows for key, value in row.items() if key not in ("time", "flow")]
    assert {row["flow"] for row in rows} == {"datagrams"}
    assert max(values) == pytest.approx(5e6, rel=0.1)


def test_runs_can_be_chosen(stored: tuple[Influx, str]) -> None:
    influx, run = stored
    assert run in {row["value"] for row in influx.query(RUNS)}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_files_are_made_from_the_panels(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == text(name), "make docs writes it again"
