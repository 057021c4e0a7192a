from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from dumbbell.execution.collect import collect
from dumbbell.ingest.influx import Influx, InfluxError, InfluxTarget
from dumbbell.run.record import read_json


class Database(ThreadingHTTPServer):
    """As much of InfluxDB as the client uses: it keeps rows by series and time, and counts them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.rows: dict[tuple[str, str], str] = {}
        self.requests: list[int] = []
        self.deaf = False

    @property
    def target(self) -> InfluxTarget:
        return InfluxTarget(f"http://127.0.0.1:{self.server_port}", "dumbbell", "writer", "secret")


class Handler(BaseHTTPRequestHandler):
    server: Database

    def do_POST(self) -> None:
        body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        lines = body.decode().splitlines()
        self.server.requests.append(len(lines))
        if not self.server.deaf:
            for line in lines:
                series, fields, time = re.fullmatch(r"(\S+) (.*) (\d+)", line).groups()  # type: ignore[union-attr]
                self.server.rows[series, time] = fields
        self.answer(204, None)

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        asked = re.search(r"FROM (.+) WHERE", query["q"][0])[1]  # type: ignore[index]
        run = json.loads(query["params"][0])["run"]
        found = []
        for measurement in re.findall(r'"(\w+)"', asked):
            stored = [s for s, _ in self.server.rows if s.startswith(f"{measurement},") and f"run={run}" in s]
            if stored:
                values = [[0, len(stored)]]
                found.append({"name": measurement, "columns": ["time", "count"], "values": values})
        self.answer(200, {"results": [{"series": found}]})

    def answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode() if body else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def database() -> Iterator[Database]:
    with Database() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_missing_rows_are_backfilled_once(run_dir: Path, database: Database) -> None:
    assert collect(run_dir, database.target, wait_s=0).state == "passed"
    rows = read_json(run_dir / "manifest.json")["rows"]["influxdb"]
    assert rows["tcp_info"] == {"spooled": 1104, "stored": 1104, "backfilled": 1104, "error": ""}
    assert rows["qdisc"]["stored"] == 2440

    database.requests.clear()
    assert collect(run_dir, database.target, wait_s=0).state == "passed"
    assert database.requests == []


def test_rows_that_stay_away_make_the_run_invalid(run_dir: Path, database: Database) -> None:
    database.deaf = True
    verdict = collect(run_dir, database.target, wait_s=0)
    assert verdict.state == "invalid"
    assert verdict.reasons[0].startswith("tcp_info: rows of tcp_info in InfluxDB: asked 1")


def test_no_database_is_one_clear_reason(run_dir: Path) -> None:
    verdict = collect(run_dir, InfluxTarget("http://127.0.0.1:9", "dumbbell"), wait_s=0)
    assert verdict.state == "invalid"
    (reason,) = verdict.reasons
    assert reason.startswith(
        "InfluxDB: number of its rows not known: InfluxDB at http://127.0.0.1:9 does not answer"
    )


def test_writes_are_gzipped_batches_with_credentials() -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204)

    lines = b"".join(b"m n=%di %d\n" % (i, i) for i in range(12_000))
    target = InfluxTarget("http://db:8086", "dumbbell", "writer", "secret")
    with Influx(target, httpx.MockTransport(handle)) as influx:
        influx.write([lines[:100_000], lines[100_000:]] if lines[99_999:100_000] == b"\n" else [lines])
    assert [gzip.decompress(r.content).count(b"\n") for r in seen] == [5000, 5000, 2000]
    assert dict(seen[0].url.params) == {"db": "dumbbell", "precision": "ns"}
    assert seen[0].headers["Authorization"].startswith("Basic ")
    assert "secret" not in repr(target)


def test_refusals_say_why() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(400, json={"error": "partial write: field type conflict"})

    with (
        Influx(InfluxTarget("http://db:8086", "dumbbell"), httpx.MockTransport(handle)) as influx,
        pytest.raises(InfluxError, match="answered 400: partial write: field type conflict"),
    ):
        influx.write([b"m n=1i 1\n"])


def test_queries_give_rows_with_tags() -> None:
    series = {"name": "m", "tags": {"host": "a"}, "columns": ["time", "n"], "values": [[1, 2], [3, 4]]}

    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"results": [{"series": [series]}]})

    with Influx(InfluxTarget("http://db:8086", "dumbbell"), httpx.MockTransport(handle)) as influx:
        assert influx.query("SELECT n FROM m") == [
            {"host": "a", "time": 1, "n": 2},
            {"host": "a", "time": 3, "n": 4},
        ]
