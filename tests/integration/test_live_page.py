"""The page of a run, as its command serves it, and with samples in a real InfluxDB."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import polars as pl
import psutil
import pytest
from synthetic import RUN_ID
from test_fab import REPOSITORY, fab
from test_influxdb import free_port, influxd

from dumbbell.execution.collect import collect
from dumbbell.ingest.influx import Influx, InfluxTarget
from dumbbell.live import flows
from dumbbell.live.known import look

# Tests beside this one may leave it little of the processor.
STARTUP_S = 300


@contextmanager
def served(run: Path, said: list[str], *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The page's address and its server, which ends as by Ctrl-C; then ``said`` has its output."""
    port = free_port()
    program = str(Path(sys.executable).with_name("fab"))
    command = [program, "live", "--run", str(run), "--port", str(port), *arguments]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + STARTUP_S
            while True:
                try:
                    httpx.get(url, trust_env=False)
                    break
                except httpx.HTTPError:
                    assert server.poll() is None, server.stdout and server.stdout.read()
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
            yield url, server
        finally:
            server.send_signal(signal.SIGINT)
            said.append(server.communicate(timeout=STARTUP_S)[0])


def test_it_is_served_on_loopback_alone_until_ctrl_c(collected: Path) -> None:
    said: list[str] = []
    with served(collected, said, "--inventory", "inventory/vtime") as (url, server):
        listening = [of for of in psutil.Process(server.pid).net_connections() if of.status == "LISTEN"]
        assert [of.laddr.ip for of in listening] == ["127.0.0.1"]
        assert httpx.get(url, headers={"Host": "elsewhere.example"}, trust_env=False).status_code == 400
        port = url.rpartition(":")[2]
        refused = fab("live", "--run", str(collected), "--port", port)
        assert refused == (
            *(1, f"127.0.0.1 port {port}: Address already in use. Choose others with --host and --port\n"),
        )
    assert (server.returncode, said) == (0, [f"{url}/ until Ctrl-C\n"])


def test_another_address_is_served_with_a_warning(collected: Path) -> None:
    said: list[str] = []
    with served(collected, said, "--host", "0.0.0.0"):
        pass
    assert said[0].startswith("Everybody who can reach 0.0.0.0 can read this page")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--inventory", "inventory/nowhere"), "inventory/nowhere: there is no such inventory"),
        (("--port", "70000"), "--port 70000: a port is a number from 1 to 65535"),
        (("--host", "192.0.2.1"), "192.0.2.1 port 8050: Cannot assign requested address"),
    ],
)
def test_what_cannot_be_served_is_said(arguments: tuple[str, ...], reason: str, collected: Path) -> None:
    code, said = fab("live", "--run", str(collected), *arguments)
    assert code == 1
    assert said.startswith(reason)
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def influx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InfluxTarget]:
    folder = tmp_path_factory.mktemp("influxdb")
    url = f"http://127.0.0.1:{(port := free_port())}"
    with influxd(folder, port, tls=False):
        for query in ("CREATE USER admin WITH PASSWORD 'p' WITH ALL PRIVILEGES", "CREATE DATABASE dumbbell"):
            done = httpx.post(f"{url}/query", data={"q": query}, auth=("admin", "p"), trust_env=False)
            done.raise_for_status()
        yield InfluxTarget(url, "dumbbell", "admin", "p")


def test_flows_and_queue_are_those_of_the_run(run_dir: Path, influx: InfluxTarget) -> None:
    run_dir = run_dir.rename(run_dir.with_name(RUN_ID))
    known = look(run_dir, time.time_ns())
    execution, phase = known.shown.execution, known.phase
    with Influx(influx) as client:
        none = flows.sampled(client, execution, phase)
        assert none.missing == ["InfluxDB has no samples of this point yet."]
        collect(run_dir, influx, wait_s=0)  # writes all rows
        found = flows.sampled(client, execution, phase)
    assert found.missing == []
    samples = pl.read_parquet(run_dir / "tcp_info.parquet").filter(phase="measurement", side="sender")
    last = samples.sort("t_ns").group_by("flow").last()
    results = {flow.asked.name: flow for flow in flows.results(execution) or []}
    assert [flow.asked.name for flow in found.flows] == ["flow1", "flow2"]
    for flow in found.flows:
        row = last.filter(flow=flow.asked.name).row(0, named=True)
        assert (flow.control, flow.cwnd) == ("cubic", row["snd_cwnd"])
        assert flow.rtt_ns == 1000 * row["srtt_us"]
        assert flow.retransmissions == row["total_retrans"]
        mean = found.series.filter(name=flow.asked.name)["value"].mean()
        assert mean == pytest.approx(results[flow.asked.name].goodput_bps, rel=0.1)
    qdisc = pl.read_parquet(run_dir / "qdisc.parquet").filter(phase="measurement", dev="vec2", kind="pfifo")
    forward, _ = found.queues
    assert (forward.way, forward.device, forward.kind, forward.limit) == (
        *("forward", "router vec2", "pfifo", "166 packets"),
    )
    # Steps are whole seconds of the wall clock, as t0 is.
    seconds = qdisc.group_by((pl.col("unix_ns") // 10**9).alias("s")).agg(
        pl.col("backlog_bytes", "drops").max()
    )
    whole = seconds.sort("s").filter(pl.col("s") < (found.last_ns or 0) // 10**9)
    backlogs = found.backlogs.filter(name="forward")
    assert backlogs["value"].to_list() == whole["backlog_bytes"].to_list()
    assert forward.backlog_bytes == whole["backlog_bytes"][-1]
    assert forward.drops == whole["drops"][-1] - whole["drops"][0]
    assert forward.drops > 0
