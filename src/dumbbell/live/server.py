"""The server of the page: it looks at the run when a browser asks, and serves reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import flask
from dash import Dash, Input, Output, State, no_update

from dumbbell.ingest.influx import Influx, InfluxError, InfluxTarget
from dumbbell.live import flows, page
from dumbbell.live.flows import Flows
from dumbbell.live.known import Known, NoRunError, look

REPORT = "report.html"
AGED_S = 30  # samples that were asked for before this time are not shown: nobody had the page open
FRAME = """<!doctype html>
<html lang="en"><head>{%metas%}<title>{%title%}</title>{%favicon%}<style>STYLE</style>{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body></html>"""


class Samples:
    """The latest samples in an inventory's InfluxDB. A thread asks for them, so the page never waits."""

    def __init__(self, inventory: str, tell: Callable[[str], None]) -> None:
        self._inventory, self._tell = inventory, tell
        self._influx: Influx | None = None
        self._refused = ""  # why the inventory gives no InfluxDB
        self._found: Flows | None = None
        self._found_s = 0.0
        self._final = False  # whether the point had ended when they were asked for
        self._asking, self._lock = Thread(), Lock()

    def of(self, known: Known) -> Flows:
        """What is known of the flows of the shown point; when it has ended, their results."""
        found = self._latest(known)
        if known.shown.judged and (results := flows.results(known.shown.execution)):
            return replace(found, flows=results, source="Results of the whole measurement; RTTs are medians.")
        return found

    def _latest(self, known: Known) -> Flows:
        """The samples that were found last; asks again unless nothing new can be found."""
        execution = known.shown.execution
        if known.virtual:
            why = "In virtual time no samples are sent to InfluxDB; values come with the point's verdict."
        elif known.shown.state == "planned":
            why = "This point has not begun, so there are no samples of it."
        elif not self._refused:
            return self._asked(known) or flows.unknown(execution, known.phase, "InfluxDB is being asked.")
        else:
            why = self._refused
        return flows.unknown(execution, known.phase, why)

    def _asked(self, known: Known) -> Flows | None:
        with self._lock:
            found = self._found
            aged = time.monotonic() - self._found_s > AGED_S and not self._final
            if found and (aged or found.run != known.shown.execution.id):
                found = None
            if not (self._asking.is_alive() or (found and self._final)):
                self._asking = Thread(target=self._ask, args=[known], daemon=True)
                self._asking.start()
        return found

    def _ask(self, known: Known) -> None:
        execution, phase = known.shown.execution, known.phase
        try:
            if self._influx is None:
                self._influx = self._connected()
            found = flows.sampled(self._influx, execution, phase)
        except InfluxError as error:
            found = flows.unknown(execution, phase, f"There are no samples: {error}.")
            if self._found is None or self._found.missing != found.missing:
                self._tell(found.missing[0])
        with self._lock:
            self._found, self._found_s = found, time.monotonic()
            self._final = known.shown.judged

    def _connected(self) -> Influx:
        try:
            return Influx(InfluxTarget.of_inventory(self._inventory))
        except InfluxError as error:  # Ansible takes seconds to say so, and would say the same again
            self._refused = f"There are no samples: {error}."
            raise


def application(run: Path, samples: Samples) -> Dash:
    """The page of a run's directory, or of the one that a link points to, and the reports beside it."""
    app = Dash(__name__, title="Dumbbell", update_title="", serve_locally=True, assets_folder="assets")
    style = files("dumbbell.report").joinpath("templates/style.css").read_text()
    app.index_string = FRAME.replace("STYLE", style)
    app.layout = page.layout()

    @app.callback(
        Output("head", "children"),
        Output("strip", "children"),
        Output("strip-shown", "data"),
        Output("figure", "figure"),
        Output("figure-place", "hidden"),
        Output("tables", "children"),
        Input("tick", "n_intervals"),
        State("strip-shown", "data"),
    )
    def refresh(_: int | None, shown: str | None) -> tuple[Any, ...]:
        now_ns = time.time_ns()
        try:
            known = look(run, now_ns)
        except NoRunError as error:
            return page.problem(str(error)), [], "", no_update, True, []
        found = samples.of(known)
        # A thousand cells are sent again only if one of them has changed.
        state = f"{known.run.id} {hash(tuple((point.state, point.reasons) for point in known.points))}"
        strip = (no_update, no_update) if state == shown else (page.strip(known), state)
        no_figure = found.series.is_empty()
        figure = no_update if no_figure else page.figure(found)
        return page.head(known, found, now_ns), *strip, figure, no_figure, page.tables(known, found)

    server: flask.Flask = app.server

    @server.get("/runs/<path:name>")
    def report(name: str) -> flask.Response | tuple[str, int]:
        # Other files of a run directory tell more of its hosts than a reader of the page should know.
        if Path(name).name != REPORT:
            return f"Only reports are served: .../{REPORT}", 404
        folder = run.resolve().parent
        if not (folder / name).is_file():
            return f"{name} has not been written.", 404
        return flask.send_from_directory(folder, name)

    return app
