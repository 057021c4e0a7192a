"""What follows from what hosts answer to the steps of a point."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumbbell.execution import archive, calibrated, own_delay
from dumbbell.execution.answers import SECOND_NS, SILENT, Answers, Armed, behind_ns, start_unix_ns
from dumbbell.execution.point import PlannedPoint
from dumbbell.rundir import read_json
from dumbbell.store.collect import own_rows
from dumbbell.store.run import Run

HOSTS = ("sender1", "router", "receiver1")


def said(**troubles: str) -> dict[str, dict[str, Any]]:
    return {host: {"run_id": "r", "trouble": troubles.get(host, "")} for host in HOSTS}


def test_without_trouble_the_point_goes_on() -> None:
    answers = Answers(HOSTS, [said(), said()])
    assert answers.go_on
    assert answers.reasons() == []
    assert answers.end() == ""


def test_the_first_trouble_of_a_host_is_its_reason() -> None:
    answers = Answers(HOSTS, [said(router="no netem"), said(router="not armed", sender1="late")])
    assert not answers.go_on
    assert answers.reasons() == ["router: no netem", "sender1: late"]


def test_what_all_hosts_say_is_said_once() -> None:
    answers = Answers(HOSTS, [said(**dict.fromkeys(HOSTS, "no start"))])
    assert answers.reasons() == ["no start"]


def test_what_some_hosts_say_is_said_with_their_names() -> None:
    answers = Answers(HOSTS, [said(sender1="the disk is full", router="the disk is full")])
    assert answers.reasons() == ["sender1, router: the disk is full"]


def test_a_host_that_is_silent_ends_the_run() -> None:
    answers = Answers(HOSTS, [said(), said(router=SILENT)])
    assert answers.reasons() == ["router no longer answers"]
    assert answers.end() == "router does not answer. When it does:"


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        ({"failed": True, "msg": "Timed out after 600 seconds"}, "router: Timed out after 600 seconds"),
        ({"unreachable": True, "msg": "ssh: connect"}, "router no longer answers"),
    ],
)
def test_what_ansible_ended_is_trouble(ended: dict[str, Any], reason: str) -> None:
    assert Answers(HOSTS, [said() | {"router": ended}]).reasons() == [reason]


def test_who_stops_a_point_ends_the_run() -> None:
    stopped = said() | {"sender1": {"run_id": "r", "trouble": "", "stopped": "stopped by hand"}}
    answers = Answers(HOSTS, [said(), stopped])
    assert not answers.go_on
    assert answers.reasons() == ["stopped by hand"]
    assert answers.end().startswith("stopped by hand.")


AGENTS = st.builds(
    Armed,
    now_unix_ns=st.integers(10**18, 10**18 + 10**9),
    received_unix_ns=st.integers(10**18, 10**18 + 10 * 10**9),
    lead_ns=st.integers(0, 10**10),
)


@given(st.lists(AGENTS, min_size=1, max_size=6), st.integers(0, 5 * SECOND_NS))
def test_every_agent_has_its_time_before_t0(agents: list[Armed], margin_ns: int) -> None:
    t0 = start_unix_ns(agents, margin_ns)
    assert t0 % SECOND_NS == 0
    last = max(agent.received_unix_ns for agent in agents)
    for agent in agents:
        its_clock_then = agent.now_unix_ns + last - agent.received_unix_ns
        assert t0 - its_clock_then >= agent.lead_ns + margin_ns
    assert behind_ns(agents) == min(agent.received_unix_ns - agent.now_unix_ns for agent in agents)


def test_t0_is_as_near_as_the_slowest_agent_allows() -> None:
    agents = [Armed(10**18, 10**18, 3 * SECOND_NS), Armed(10**18, 10**18, SECOND_NS // 2)]
    assert start_unix_ns(agents, SECOND_NS) == 10**18 + 4 * SECOND_NS


def plan(**path: Any) -> dict[str, Any]:
    return {"path": {"rate_bps": 10**8} | path, "phases": [{"phase": "calibration", "flows": []}]}


STATE = {
    "boot_id": "b",
    "kernel": "6.12",
    "nic": {"vec1": {"mtu": 1500}},
    "cpu": {},
    "path": None,
    "sysctl": {},
}


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"sysctl": {"net.ipv4.tcp_sack": "0"}}, True),
        ({"sysctl": {"net.core.netdev_budget": "10"}}, False),
        ({"boot_id": "c"}, False),
        ({"nic": {"vec1": {"mtu": 9000}}}, False),
        ({"path": {"trim_us": 100}}, False),
        ({"clock": {"offset_ns": 3}}, True),
    ],
)
def test_a_calibration_holds_until_what_it_measured_changes(changed: dict[str, Any], same: bool) -> None:
    one = calibrated.fingerprint(plan(), {"router": STATE})
    assert (calibrated.fingerprint(plan(), {"router": STATE | changed}) == one) is same
    assert calibrated.fingerprint(plan(rate_bps=10**7), {"router": STATE}) != one


def test_a_calibration_proves_so_many_points_and_no_more(tmp_path: Path) -> None:
    first = tmp_path / "points/001"
    (first / "raw/router/calibration").mkdir(parents=True)
    (first / "raw/router/calibration/status.json").write_text('{"state": "done"}')
    calibrated.remember(tmp_path, "digest", "run_001", first)
    for number in (2, 3):
        known = calibrated.reusable(tmp_path, "digest", every=3)
        assert known is not None
        point = tmp_path / f"points/00{number}"
        (point / "raw/router/calibration").mkdir(parents=True)
        calibrated.reuse(tmp_path, known, point)
        assert read_json(point / calibrated.REUSED) == {"execution": "run_001", "fingerprint": "digest"}
        assert (point / "raw/router/calibration/status.json").read_text() == '{"state": "done"}'
    assert calibrated.reusable(tmp_path, "digest", every=3) is None
    assert calibrated.reusable(tmp_path, "another", every=3) is None


def test_only_a_calibration_that_was_as_asked_is_reused() -> None:
    rtt, rate = ({"name": name, "subject": "s", "ok": True} for name in ("idle RTT", "rate"))
    other = {"name": "start", "subject": "flow1", "ok": False}
    assert calibrated.holds({"checks": [rtt, rate, other]})
    assert not calibrated.holds({"checks": [rtt, rate | {"ok": False}]})
    assert not calibrated.holds({"checks": [other]})


def test_the_correction_of_a_path_is_known_from_its_first_point_on(tmp_path: Path) -> None:
    assert own_delay.known_us(tmp_path, plan()["path"]) is None
    own_delay.remember(tmp_path, plan()["path"], 250)
    assert own_delay.known_us(tmp_path, plan()["path"]) == 250
    assert own_delay.known_us(tmp_path, plan(rate_bps=1)["path"]) is None


FACTS = {
    "run_id": "run_001",
    "run_dir": "/results/run",
    "measuring": False,
    "phases": {"sender1": ["calibration", "measurement"], "router": ["measurement"]},
    "plan": {
        "path": None,
        "phases": [
            {"phase": "calibration", "flows": [], "hosts": {}},
            {
                "phase": "measurement",
                "flows": [
                    {"kind": "atou", "src_host": "sender1", "dst_host": "receiver1", "dst": "2001:db8::1"}
                ],
                "hosts": {"sender1": {"sample": {"ebpf": True}}, "router": {"sample": {"ebpf": False}}},
            },
        ],
    },
}


def test_what_a_host_does_in_a_point() -> None:
    point = PlannedPoint(FACTS)
    assert point.takes_part("router", "measurement")
    assert not point.takes_part("router", "calibration")
    assert point.unit("sender1", "measurement") == "dumbbell-agent-ebpf@run_001-measurement"
    assert point.unit("router", "measurement") == "dumbbell-agent@run_001-measurement"
    assert point.peer("sender1") == "2001:db8::1"
    assert point.peer("router") == ""
    assert point.kinds("receiver1") == {"atou"}


@pytest.mark.parametrize("padding", [0, 1 << 20])
@pytest.mark.parametrize("become", [None, object()])
def test_an_archive_comes_home_and_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, become: object, padding: int
) -> None:
    monkeypatch.setattr(archive, "PIECE_BYTES", 100)
    (tmp_path / "phase").mkdir()
    (tmp_path / "phase/events.jsonl").write_bytes(bytes(range(256)) * 9)
    packed = tmp_path / "phase.tgz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(tmp_path / "phase", arcname=".")
    with packed.open("ab") as file:
        file.write(bytes(padding))

    def shell(line: str) -> str:
        return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout

    def fetch_file(there: str, here: str) -> None:
        Path(here).write_bytes(Path(there).read_bytes())

    if padding and become:
        monkeypatch.setattr(archive, "PIECE_BYTES", 1 << 18)
    home = tmp_path / "raw/sender1/measurement"
    archive.fetch(SimpleNamespace(become=become, fetch_file=fetch_file), shell, str(packed), home)
    assert (home / "events.jsonl").read_bytes() == bytes(range(256)) * 9
    assert home.with_suffix(".tgz").read_bytes() == packed.read_bytes()


def test_an_archive_that_is_cut_short_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "phase.tgz").write_bytes(b"\x1f\x8b\x08")

    def fetch_file(there: str, here: str) -> None:
        Path(here).write_bytes(Path(there).read_bytes())

    connection = SimpleNamespace(become=None, fetch_file=fetch_file)
    with pytest.raises(OSError, match="cannot be unpacked"):
        archive.fetch(connection, str, str(tmp_path / "phase.tgz"), tmp_path / "home")


def test_rows_of_a_reused_calibration_are_those_of_the_point_that_made_it(tmp_path: Path) -> None:
    rows = {"snmp": pl.DataFrame({"phase": ["calibration", "measurement"]}), "none": pl.DataFrame()}
    run = SimpleNamespace(dir=tmp_path)
    assert own_rows(run, rows)["snmp"].height == 2  # type: ignore[arg-type]
    (tmp_path / calibrated.REUSED).write_text("{}")
    assert own_rows(run, rows)["snmp"]["phase"].to_list() == ["measurement"]  # type: ignore[arg-type]


def test_a_point_with_the_calibration_of_another_keeps_its_own_id(run_dir: Path) -> None:
    own = Run.open(run_dir).id
    for file in run_dir.glob("raw/*/calibration/plan.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"run_id": "run_001"}))
    assert Run.open(run_dir).id == own
