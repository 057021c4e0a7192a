"""Client and Telegraf's configuration with real servers: InfluxDB 1.x by password and TLS, 2.x by token."""

from __future__ import annotations

import json
import os
import runpy
import socket
import ssl
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import jinja2
import polars as pl
import pytest
from ansible.errors import AnsibleFilterError
from hypothesis import assume, given
from hypothesis import strategies as st

from dumbbell.ingest import live
from dumbbell.ingest.influx import Influx, InfluxError, InfluxTarget
from dumbbell.report.pages.explore import Explore
from dumbbell.run.progress import goodputs
from playbooks import ansible_playbook, unfolded

REPOSITORY = Path(__file__).parents[2]
BUILT = REPOSITORY / ".build/bin"
ROWS = b"".join(
    b"tcp_info,run=r1,flow=it's\\ 1 mono_ns=%di,snd_cwnd=10i %d\n" % (i, i) for i in range(1, 7001)
)
STARTUP_S = 60


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def await_ping(url: str, verify: Any = True) -> None:
    deadline = time.monotonic() + STARTUP_S
    while True:
        try:
            if httpx.get(f"{url}/ping", verify=verify, trust_env=False).status_code == 204:
                return
        except httpx.HTTPError:
            pass
        assert time.monotonic() < deadline, f"{url} does not answer"
        time.sleep(0.2)


def filters() -> dict[str, Any]:
    """The collection's filters."""
    found: dict[str, Any] = {}
    for file in (REPOSITORY / "plugins" / "filter").glob("*.py"):
        found |= runpy.run_path(str(file))["FilterModule"]().filters()
    return {f"dumbbell.testbed.{name}": filter for name, filter in found.items()}


def render(template: str, **variables: Any) -> str:
    """A role's template, as Ansible renders it."""
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= filters()
    text = (REPOSITORY / "roles" / template).read_text()
    return environment.from_string(text).render(ansible_managed="a test", **variables)


@contextmanager
def influxd(folder: Path, port: int, *, tls: bool) -> Iterator[None]:
    """The server that the role installs, with its configuration but for paths, when it answers."""
    text = render(
        "influxdb/templates/influxdb.conf.j2",
        __influxdb_address="127.0.0.1",
        __influxdb_port=port,
        __influxdb_tls=tls,
    )
    text = text.replace("127.0.0.1:8088", f"127.0.0.1:{free_port()}")
    text = text.replace("/var/lib/influxdb", str(folder)).replace(
        "/run/credentials/influxdb.service", str(folder)
    )
    (folder / "influxdb.conf").write_text(text)
    with subprocess.Popen(
        [BUILT / "influxd", "-config", folder / "influxdb.conf"],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("w"),
    ) as server:
        try:
            if tls:
                verify = ssl.create_default_context(cafile=str(folder / "influxdb.crt"))
                await_ping(f"https://localhost:{port}", verify)
            else:
                await_ping(f"http://127.0.0.1:{port}")
            yield
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def version_1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InfluxTarget]:
    """InfluxDB 1.x behind TLS."""
    folder = tmp_path_factory.mktemp("influxdb1")
    key, certificate = folder / "influxdb.key", folder / "influxdb.crt"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", key, "-out", certificate),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    url = f"https://localhost:{(port := free_port())}"
    with influxd(folder, port, tls=True):
        for query in (
            "CREATE USER admin WITH PASSWORD 'pass word' WITH ALL PRIVILEGES",
            "CREATE DATABASE dumbbell; CREATE USER telegraf WITH PASSWORD 'writes'; "
            "GRANT WRITE ON dumbbell TO telegraf",
        ):
            httpx.post(
                f"{url}/query",
                data={"q": query},
                auth=("admin", "pass word"),
                verify=ssl.create_default_context(cafile=str(certificate)),
                trust_env=False,
            ).raise_for_status()
        yield InfluxTarget(url, "dumbbell", "admin", "pass word", ca=str(certificate))


@contextmanager
def influxd_2(folder: Path) -> Iterator[InfluxTarget]:
    """An InfluxDB 2.x with the bucket ``dumbbell``, and a token for all; skips where none is installed."""
    program = os.environ.get("INFLUXD2")
    if not program:
        pytest.skip("INFLUXD2 names no InfluxDB 2.x server")
    url = f"http://127.0.0.1:{(port := free_port())}"
    with subprocess.Popen(
        [
            *(program, "--http-bind-address", f"127.0.0.1:{port}", "--reporting-disabled"),
            *("--bolt-path", folder / "bolt", "--sqlite-path", folder / "sqlite"),
            *("--engine-path", folder / "engine"),
        ],
        stdout=(folder / "log").open("w"),
        stderr=subprocess.STDOUT,
    ) as server:
        try:
            await_ping(url)
            made = httpx.post(
                f"{url}/api/v2/setup",
                json={"username": "admin", "password": "password", "org": "site", "bucket": "dumbbell"},
                trust_env=False,
            )
            yield InfluxTarget(url, "dumbbell", token=made.raise_for_status().json()["auth"]["token"])
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def version_2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InfluxTarget]:
    with influxd_2(tmp_path_factory.mktemp("influxdb2")) as target:
        yield target


@pytest.fixture(params=["version_1", "version_2"])
def target(request: pytest.FixtureRequest) -> InfluxTarget:
    found: InfluxTarget = request.getfixturevalue(request.param)
    return found


def test_rows_are_written_counted_and_read(target: InfluxTarget) -> None:
    with Influx(target) as influx:
        assert influx.counts(["tcp_info", "cpu"], "no such run") == {"tcp_info": 0, "cpu": 0}
        for _ in range(2):  # writing again changes nothing
            influx.write([ROWS])
        assert influx.counts(["tcp_info", "cpu"], "r1") == {"tcp_info": 7000, "cpu": 0}
        rows = influx.query(
            'SELECT snd_cwnd FROM tcp_info WHERE "flow" = $flow AND time < 3 GROUP BY "run"', flow="it's 1"
        )
    assert rows == [{"run": "r1", "time": time_ns, "snd_cwnd": 10} for time_ns in (1, 2)]


def test_goodputs_are_those_of_the_last_seconds(target: InfluxTarget) -> None:
    now = time.time_ns()
    lines = []
    for back in range(60):  # half a second each: what is long past is no longer of interest
        at = now - back * 500_000_000
        sent = 125_000 * (60 - back)  # 2 Mbit/s
        lines += [
            f"tcp_info,run=now,flow=tcp,side=sender,stream={stream} bytes_acked={sent}i {at}"
            for stream in (0, 1)
        ]
        lines.append(f"tcp_info,run=now,flow=tcp,side=receiver,stream=0 bytes_acked=0i {at}")
        lines.append(f"udp,run=now,flow=udp,side=receiver received_bytes={sent}i {at}")
        lines.append(
            f"http_fetch,run=now,flow=web,side=receiver fetch={60 - back}i,received_bytes=50000i {at}"
        )
        lines.append(f"tcp_info,run=now,flow=web,side=sender bytes_acked={sent // (1 + back % 2)}i {at}")
        lines.append(f"udp,run=other,flow=strange,side=receiver received_bytes={sent}i {at}")
        if back > 30:
            lines.append(f"tcp_info,run=now,flow=dead,side=sender,stream=0 bytes_acked={sent}i {at}")
    with Influx(target) as influx:
        influx.write([("\n".join(lines) + "\n").encode()])
        found = goodputs(influx, "now")
    assert found.pop("web") / 50_000 in range(1, 17)  # whole fetches: 16 in 8 s, less those that are past
    assert found == pytest.approx({"tcp": 4e6, "udp": 2e6})


def test_runs_are_looked_at(target: InfluxTarget) -> None:
    begin = 1_700_000_000 * 10**9
    lines = []
    for second in range(11):
        at, tags = begin + second * 10**9, "run=look,phase=measurement"
        for stream in (0, 1):  # 2 Mbit/s each
            fields = (
                f"bytes_acked={250_000 * second}i,snd_cwnd={10 + second}i,srtt_us=20000i,total_retrans=3i"
            )
            lines.append(
                f"tcp_info,{tags},flow=tcp,host=s,side=sender,stream={stream} "
                f'{fields},congestion_control="reno",mono_ns=1i {at}'
            )
        lines.append(
            f"tcp_info,{tags},flow=web,host=s,side=sender bytes_acked=7i,snd_cwnd=1i,mono_ns=1i {at}"
        )
        lines.append(
            f"udp,{tags},flow=udp,host=r,side=receiver "
            f"received_bytes={125_000 * second}i,received_packets={100 * second}i,lost_packets=2i,"
            f"mono_ns=1i {at}"
        )
        lines.append(
            f"http_fetch,{tags},flow=web,host=r,side=receiver "
            f"received_bytes=62500i,completion_ns=5i,mono_ns=1i {at + 1}"
        )
    lines.append(f"tcp_info,run=older,flow=tcp,side=sender,stream=0 mono_ns=1i {begin - 10**9}")
    lines.append(f"tcp_info,flow=other,side=sender mono_ns=1i {begin}")  # of no run
    with Influx(target) as influx:
        influx.write([("\n".join(lines) + "\n").encode()])
        runs = live.runs(influx).filter(pl.col("run").is_in(["look", "older", ""]))
        flows = live.flows(influx, "look")
        series = live.series(influx, "look", begin, begin + 10 * 10**9)
    assert runs.rows() == [
        ("look", begin, begin + 10 * 10**9 + 1, 3),
        ("older", begin - 10**9, begin - 10**9, 1),
    ]
    tcp: tuple[object, ...] = ("measurement", "tcp", "s", "reno", 20, 20_000, 3, None, None, None)
    assert flows.drop("stream").rows() == [
        tcp,
        tcp,
        ("measurement", "udp", "r", None, None, None, None, 1000, 2, None),
        ("measurement", "web", "r", None, None, None, None, None, None, 11),
    ]
    assert series["unix_ns"].is_between(begin, begin + 10 * 10**9).all()
    for flow, rate, window, rtt in (
        ("tcp", 4e6, 38, 20_000),
        ("udp", 1e6, None, None),
        ("web", 5e5, None, None),
    ):
        own = series.filter(flow=flow)
        assert own["goodput_bps"].drop_nulls().unique().to_list() == pytest.approx([rate])
        assert own["goodput_bps"].drop_nulls().len() >= 9
        assert (own["snd_cwnd"].max(), own["srtt_us"].max()) == (window, rtt)


def test_a_run_can_be_picked(version_1: InfluxTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Explore, "influx", Influx(version_1))
    with Influx(version_1) as influx:
        rows = [f"tcp_info,run={run},flow=f,side=sender,stream=0 mono_ns=1i,snd_cwnd=5i 9" for run in "ab"]
        influx.write([("\n".join(rows) + "\n").encode()])
    explore = Explore("any", "a")
    assert '<span class="mono">a</span>' in explore.flows().data
    assert '"label":"a"' in explore.series().data
    assert "has no run c; it has " in Explore("any", "c").runs().data


def telegraf_once(target: InfluxTarget, password: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Telegraf with the role's configuration collects once and delivers."""
    text = render(
        "telegraf/templates/telegraf.conf.j2",
        influxdb_url=target.url,
        influxdb_database=target.database,
        __telegraf_token=target.token,
        influxdb_writer_username="telegraf",
        influxdb_writer_password=password,
        __telegraf_ca=target.ca,
        telegraf_flush_interval="1s",
        telegraf_interval="1s",
        telegraf_nics=[],
        inventory_hostname="sender1",
    )
    text = text.replace("/run/credentials/telegraf.service/telegraf-ca.pem", target.ca or "")
    text = text.replace("/var/lib/telegraf", str(tmp_path)).replace("/var/lib/dumbbell", str(tmp_path))
    (tmp_path / "telegraf.conf").write_text(text)
    return subprocess.run(
        [BUILT / "telegraf", "--config", tmp_path / "telegraf.conf", "--once"],
        env=os.environ | {"HOME": "/home"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_telegraf_delivers(target: InfluxTarget, tmp_path: Path) -> None:
    done = telegraf_once(target, "writes", tmp_path)
    assert done.returncode == 0, done.stderr
    with Influx(target) as influx:
        rows = influx.query("SELECT last(total) FROM mem WHERE host = $host", host="sender1")
    assert rows[0]["last"] > 0


def test_accounts_with_any_password_and_database(tmp_path: Path) -> None:
    admin = """it's "one" of $HOME \\n with a back\\slash' ü"""
    writer = """'; DROP DATABASE x; "${HOME}" \\"""
    reader = "'reads' \"$x\""
    url = f"http://127.0.0.1:{(port := free_port())}"
    asked = {
        "influxdb_url": url,
        "influxdb_database": 'the "rows" of it\'s lab',
        "influxdb_admin_password": admin,
        "influxdb_writer_password": writer,
        "influxdb_retention": "12h",
    }
    with influxd(tmp_path, port, tls=False):
        for changed, also in ((2, {}), (0, {}), (1, {"influxdb_reader_password": reader}), (0, {})):
            asked |= also
            (tmp_path / "asked.json").write_text(json.dumps(asked))
            code, said = ansible_playbook(
                *("-i", "localhost,", "tests/integration/playbooks/accounts.yml"),
                *("-e", f"@{tmp_path / 'asked.json'}"),
            )
            assert code == 0, said
            assert f"changed={changed} " in said  # it sees what there is
        target = InfluxTarget(url, asked["influxdb_database"], "admin", admin)
        done = telegraf_once(target, writer, tmp_path)
        assert done.returncode == 0, done.stderr
        with Influx(target) as influx:
            assert influx.query("SELECT last(total) FROM mem WHERE host = $host", host="sender1")
        with Influx(replace(target, username="grafana", password=reader)) as influx:
            assert influx.query("SELECT last(total) FROM mem WHERE host = $host", host="sender1")
            with pytest.raises(InfluxError, match="not authorized to write"):
                influx.write([b"mem,host=sender1 total=0i 1\n"])
        wrong = telegraf_once(target, writer + "x", tmp_path)
    assert "authorization failed" in wrong.stderr + wrong.stdout


def test_a_database_that_influxdb_refuses_is_said(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    asked = {
        "influxdb_url": url,
        "influxdb_database": "a/b",
        "influxdb_admin_password": "not to be shown",
        "influxdb_writer_password": "nor this",
        "influxdb_retention": "INF",
    }
    with influxd(tmp_path, port, tls=False):
        code, said = ansible_playbook(
            *("-i", "localhost,", "tests/integration/playbooks/accounts.yml", "-e", json.dumps(asked))
        )
    assert code != 0
    assert f"InfluxDB at {url} refused to make the database a/b" in unfolded(said)
    assert "invalid name" in said
    assert "not to be shown" not in said
    assert "nor this" not in said


def test_a_password_that_telegraf_would_replace_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="secret store") as refused:
        filters()["dumbbell.testbed.toml_string"]("secret@{store:key}")
    assert "secret@" not in str(refused.value)


@given(st.text())
def test_any_text_is_one_string_of_toml(text: str) -> None:
    assume("@{" not in text)
    written = filters()["dumbbell.testbed.toml_string"](text)
    assert tomllib.loads(f"a = {written}") == {"a": text}
    assert "$" not in written


def test_a_wrong_token_or_password_is_said(target: InfluxTarget) -> None:
    wrong = replace(target, token="no") if target.token else replace(target, password="no")
    with Influx(wrong) as influx, pytest.raises(InfluxError, match="answered 401"):
        influx.counts(["tcp_info"], "r1")


def test_a_server_of_another_authority_is_refused(version_1: InfluxTarget) -> None:
    with Influx(replace(version_1, ca=None)) as influx, pytest.raises(InfluxError, match="certificate"):
        influx.counts(["tcp_info"], "r1")


def test_an_authority_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfluxError, match=r"ca\.pem cannot be used"):
        Influx(InfluxTarget("https://localhost:1", "dumbbell", ca=str(tmp_path / "ca.pem")))
