"""Nothing that a run leaves is unjudged: what the code can write is known, and altering it is found out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from mutations import Outcome, mutate
from synthetic import REPOSITORY, write_run

from dumbbell.facts import columns, declared, documents, waivers
from dumbbell.plan import Flow
from dumbbell.plan.actions import PhaseHost
from dumbbell.validity.rows import of_flow

SHORT = """\
name: short
title: Three flows, and a ping beside them
duration: 4s
path:
  forward: {rate: 20mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}
flows:
  first: {kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]", congestion_control: cubic,
          pacing: 20mbit}
  second: {kind: udp, from: "senders[1]", to: "receivers[1]", rate: 1mbit, start: 1s, duration: 2s}
  third: {kind: tcp, from: "senders[0]", to: "receivers[0]", congestion_control: reno, streams: 2, dscp: cs1}
  rtt: {kind: ping, from: "senders[0]", to: "receivers[0]", interval: 100ms}
"""


def go(*patterns: str) -> str:
    """Sources of the agent and what it is made of, without tests."""
    files = sorted(file for pattern in patterns for file in REPOSITORY.glob(pattern))
    return "\n".join(file.read_text() for file in files if not file.name.endswith("_test.go"))


def tags(source: str, struct: str) -> set[str]:
    """Names in JSON of the members of a Go struct that are always there."""
    found = re.search(rf"type {struct} struct {{\n(.*?)\n}}", source, re.DOTALL)
    assert found, struct
    return set(re.findall(r'json:"(\w+)"', found[1]))


# --- what the code can write ----------------------------------------------------------------------


def test_every_event_is_in_the_documentation() -> None:
    assert declared.table() in (REPOSITORY / "docs" / "data-model.md").read_text()


def test_every_event_is_judged_by_its_own_keys() -> None:
    for event in declared.events().values():
        known = {"flow", *event.keys}
        assert known >= {*event.told_apart_by, *re.findall(r"{(\w+)}", event.fault or "")}, event.name


@pytest.mark.parametrize(
    ("document", "sources", "structs"),
    [
        (documents.Status, "agent/journal/journal.go", ["Status"]),
        (documents.UdpSender, "traffic/udp/send.go", ["SentReport", "SentResult"]),
        (documents.UdpReceiver, "traffic/udp/receive.go", ["ReceivedReport", "ReceivedResult"]),
        (documents.TcpSender, "traffic/tcp/send.go", ["SentResult"]),
        (documents.TcpSentStream, "traffic/tcp/*.go", ["Stream", "SentStream"]),
        (documents.TcpReceiver, "traffic/tcp/receive.go", ["ReceivedResult"]),
        (documents.TcpReceivedStream, "traffic/tcp/*.go", ["Stream", "ReceivedStream"]),
        (documents.HttpReceiver, "traffic/http/client.go", ["ClientResult"]),
        (documents.HttpSender, "traffic/http/server.go", ["ServerResult"]),
        (documents.TcpPing, "agent/kind/tcp_ping.go", ["TCPPings"]),
    ],
)
def test_every_key_of_a_report_is_known(
    document: type[documents.Document], sources: str, structs: list[str]
) -> None:
    written = set().union(*(tags(go(sources), struct) for struct in structs))
    assert written == set(document.model_fields)


def all_columns() -> dict[str, set[str]]:
    """What is judged of each measurement."""
    asked = [*columns.of_hosts(), columns.of_class(), *map(columns.of_queue, columns.SETTINGS)]
    part = PhaseHost.model_validate({"actions": [], "sample": {"tcp": ["x"], "trace": True}})
    for kind in ("iperf3_tcp", "tcp", "udp", "http", "atou"):
        flow = Flow.model_validate(
            {"name": "x", "kind": kind, "direction": "forward", "src_host": "a", "dst_host": "b", "src": "",
             "dst": "", "server_port": 1, "client_port": 1, "streams": 1, "start_ns": 0, "duration_ns": 1,
             "congestion_control": None, "rate_bps": None, "pacing_bps": 1}
        )  # fmt: skip
        asked += [*of_flow(flow, "a", part), *of_flow(flow, "b", part)]
    found: dict[str, set[str]] = {}
    for each in asked:
        own = found.setdefault(each.measurement, set())
        own |= {*each.always, *each.sometimes, *(name for names in each.since.values() for name in names)}
    return found


@pytest.mark.parametrize(
    ("measurement", "files", "pattern"),
    [
        ("link", "collectors/link/link.go", r'"([rt]x_\w+|multicast|collisions)"'),
        ("cpu_core", "collectors/cpu/cpu.go", r'"(\w+_ms|softirq_net_\w+|softnet_\w+)"'),
        ("clock", "collectors/ntp/ntp.go", r'rows\.\w+\("(\w+)"'),
        ("snmp", "collectors/snmp/snmp.go", r'rows\.Int\("(\w+)"'),
        ("sampler", "collectors/pace/pace.go", r'rows\.Int\("(\w+)"'),
        ("qdisc", "collectors/qdisc/qdisc.go", r'rows\.Int\("(\w+)"'),
        ("qdisc", "collectors/qdisc/settings.go", r'^\t\t{"(\w+)", '),
        ("tcp_info", "collectors/tcpinfo/fields.go", r'{Name: "(\w+)"'),
        ("tcp_info", "collectors/tcpinfo/fields.go", r'"(skmem_\w+|\w+queue_bytes|timer\w*|cookie)"'),
        ("tcp_info", "collectors/tcpinfo/fields.go", r'rows\.\w+\("(\w+)"'),
        ("web100", "collectors/web100/*.go", r'^\t{"([A-Z]\w+)", "\w+", '),
        ("udp", "traffic/udp/*.go", r'(?:rows\.Int|addCount)\((?:rows, )?"(\w+)"'),
        ("http_fetch", "traffic/http/*.go", r'(?:rows\.\w+|addTime)\((?:rows, )?"(\w+)"'),
    ],
)
def test_every_column_is_judged_or_waived(measurement: str, files: str, pattern: str) -> None:
    written = set(re.findall(pattern, go(files), re.MULTILINE))
    assert written
    unjudged = written - all_columns()[measurement]
    assert not [n for n in unjudged if waivers.waiver(f"column {measurement}.{n}", "removed") is None]


def test_every_waiver_is_in_the_documentation() -> None:
    assert waivers.table() in (REPOSITORY / "docs" / "validity.md").read_text()


# --- what comes of altering it --------------------------------------------------------------------


def test_no_altered_input_leaves_a_run_passed(tmp_path: Path) -> None:
    scenario = tmp_path / "short.yml"
    scenario.write_text(SHORT)
    write_run(tmp_path / "run", scenario)
    print(found := mutate(tmp_path / "run"))
    _whole(found)


def test_no_altered_input_of_a_run_that_is_given_leaves_it_passed(
    run_given: list[Path], tmp_path: Path
) -> None:
    """Of those that were made elsewhere: ``pytest --run DIR``."""
    for number, folder in enumerate(run_given):
        run = shutil.copytree(folder, tmp_path / str(number))
        print(found := mutate(Path(run)))
        _whole(found)


def _whole(found: Outcome) -> None:
    assert not found.passed
    assert found.judged > 500  # else little was altered
