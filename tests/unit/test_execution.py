"""What follows from what hosts answer to the steps of a point."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import inventory, write_points

from dumbbell.execution import archive, calibrated, own_delay
from dumbbell.execution.answers import SECOND_NS, SILENT, Answers, Armed, behind_ns, start_unix_ns
from dumbbell.execution.collect import collect, own_rows
from dumbbell.execution.judge import judge_calibrations
from dumbbell.execution.point import PlannedPoint
from dumbbell.execution.reach import Trouble, output
from dumbbell.facts.check import Check
from dumbbell.plan import plan
from dumbbell.report.notebooks import render_points
from dumbbell.run.directory import RunDir
from dumbbell.run.record import read_json, write_json
from dumbbell.validity.points import summarise
from dumbbell.validity.verdict import Verdict

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
    asked_unix_ns=st.integers(10**18 - 10 * 10**9, 10**18),
    now_unix_ns=st.integers(10**18, 10**18 + 10**9),
    received_unix_ns=st.integers(10**18, 10**18 + 10 * 10**9),
    lead_ns=st.integers(0, 10**10),
)


@given(st.lists(AGENTS, min_size=1, max_size=6), st.integers(0, 5 * SECOND_NS), st.integers(1, SECOND_NS))
def test_every_agent_has_its_time_before_t0(agents: list[Armed], margin_ns: int, step_ns: int) -> None:
    t0 = start_unix_ns(agents, margin_ns, step_ns)
    assert t0 % step_ns == 0
    last = max(agent.received_unix_ns for agent in agents)
    for agent in agents:
        its_clock_then = agent.now_unix_ns + last - agent.received_unix_ns
        assert t0 - its_clock_then >= agent.lead_ns + max(margin_ns, agent.took_ns // 2)
    assert behind_ns(agents) == min(agent.received_unix_ns - agent.now_unix_ns for agent in agents)


def test_t0_is_as_near_as_the_slowest_agent_allows() -> None:
    agents = [Armed(10**18, 10**18, 10**18, 3 * SECOND_NS), Armed(10**18, 10**18, 10**18, SECOND_NS // 2)]
    assert start_unix_ns(agents, SECOND_NS, SECOND_NS) == 10**18 + 4 * SECOND_NS
    assert start_unix_ns(agents, SECOND_NS // 2, SECOND_NS // 10) == 10**18 + 35 * SECOND_NS // 10
    slow = [*agents, Armed(10**18 - 4 * SECOND_NS, 10**18, 10**18, 0)]
    assert start_unix_ns(slow, SECOND_NS, SECOND_NS) == 10**18 + 5 * SECOND_NS


def asked(**path: Any) -> dict[str, Any]:
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
    one = calibrated.fingerprint(asked(), {"router": STATE})
    assert (calibrated.fingerprint(asked(), {"router": STATE | changed}) == one) is same
    assert calibrated.fingerprint(asked(rate_bps=10**7), {"router": STATE}) != one


def test_a_calibration_proves_so_many_points_and_no_more(tmp_path: Path) -> None:
    first = tmp_path / "points/001"
    (first / "raw/router/calibration").mkdir(parents=True)
    (first / "raw/router/calibration/status.json").write_text('{"state": "done"}')
    (first / "verdict.json").write_text(
        json.dumps({"checks": [{"name": "rate", "subject": "s", "ok": True}]})
    )
    calibrated.remember(tmp_path, "digest", "run_001", first)
    for number in (2, 3):
        known = calibrated.reusable(tmp_path, "digest", every=3)
        assert known is not None
        point = tmp_path / f"points/00{number}"
        (point / "raw/router/calibration").mkdir(parents=True)
        calibrated.reuse(tmp_path, known, f"run_00{number}", point)
        assert read_json(point / calibrated.REUSED) == {"execution": "run_001", "fingerprint": "digest"}
        assert (point / "raw/router/calibration/status.json").read_text() == '{"state": "done"}'
    assert calibrated.reusable(tmp_path, "digest", every=3) is None
    assert calibrated.reusable(tmp_path, "another", every=3) is None


def test_only_a_calibration_that_was_as_asked_is_reused() -> None:
    rtt, rate = ({"name": name, "subject": "s", "ok": True} for name in ("idle RTT", "rate"))
    others = [{"name": name, "subject": "flow1", "ok": False} for name in ("start", "rate sent")]
    assert calibrated.holds({"checks": [rtt, rate, *others]}) is True
    assert calibrated.holds({"checks": [rtt, rate | {"ok": False}]}) is False
    assert calibrated.holds({"checks": others}) is None
    assert calibrated.holds({"state": "aborted"}) is None


MANY = """\
name: many
title: A path of which many points are run
duration: 2s
repetitions: 6
path:
  forward: {rate: 20mbit, delay: 5ms, queue: {kind: pfifo, limit: 1bdp}}
flows:
  tcp: {kind: iperf3_tcp, from: "senders[0]", to: "receivers[0]", congestion_control: cubic}
"""


@pytest.fixture
def many(tmp_path: Path) -> RunDir:
    (scenario := tmp_path / "many.yml").write_text(MANY)
    return RunDir.create(plan(scenario, inventory()), scenario, tmp_path / "results")


def make(
    run: RunDir, number: int, *, reuse: bool = False, holds: bool = True, digest: str = "digest"
) -> None:
    """A point as it is when it has been judged."""
    execution = run.executions[number - 1]
    known = calibrated.reusable(run.dir, digest, every=20)
    if reuse:
        assert known is not None
        calibrated.reuse(run.dir, known, execution.id, execution.dir)
    check = Check(name="rate", kind="validity", subject="a-b", requested=2, measured=2, ok=holds,
                  reason="" if holds else "rate of the bottleneck is 1, asked 2")  # fmt: skip
    write_json(execution.dir / "verdict.json", Verdict.of([check]).model_dump())
    if not reuse:
        calibrated.remember(run.dir, digest, execution.id, execution.dir)


def disproved(run: RunDir) -> dict[str, str]:
    return {execution.short_name: reason for execution, reason in calibrated.disproved(run)}


def test_points_are_proved_by_the_calibrations_on_both_sides_of_them(many: RunDir) -> None:
    make(many, 1)
    make(many, 2, reuse=True)
    make(many, 3)
    make(many, 4, reuse=True)
    make(many, 5, reuse=True)
    assert disproved(many) == {}
    make(many, 6, holds=False)
    reason = (
        "its calibration is that of point 3 of 6, and the next of its path, that of point 6 of 6,"
        " does not hold: a-b: rate of the bottleneck is 1, asked 2"
    )
    assert disproved(many) == {"point 4 of 6": reason, "point 5 of 6": reason}


def test_a_calibration_says_nothing_of_another_path_nor_of_points_that_another_one_proves(
    many: RunDir,
) -> None:
    make(many, 1)
    make(many, 2, reuse=True)
    make(many, 3, holds=False, digest="another")
    assert disproved(many) == {}
    make(many, 4, holds=False)
    make(many, 5, holds=False)
    assert disproved(many).keys() == {"point 2 of 6"}
    assert "that of point 4 of 6, does not hold" in disproved(many)["point 2 of 6"]


def test_no_calibration_is_reused_after_one_that_did_not_hold(many: RunDir) -> None:
    make(many, 1)
    assert calibrated.reusable(many.dir, "digest", every=20) is not None
    make(many, 2, holds=False)
    assert calibrated.reusable(many.dir, "digest", every=20) is None


@pytest.fixture
def measured(tmp_path: Path) -> RunDir:
    """Three points that were run, of which no one is judged."""
    (scenario := tmp_path / "many.yml").write_text(MANY.replace("repetitions: 6", "repetitions: 3"))
    whole = write_points(tmp_path / "run", scenario)
    (tmp_path / "run/plan.json").write_bytes(whole.to_json())
    run = RunDir.open(tmp_path / "run")
    for execution in run.executions:
        for file in execution.dir.glob("raw/*/*/plan.json"):
            about = {"run_id": execution.id, "holder": execution.holder}
            file.write_text(json.dumps(read_json(file) | about))
    return run


def judge(run: RunDir, number: int, *, reuse: bool = False) -> None:
    execution = run.executions[number - 1]
    if reuse:
        known = calibrated.reusable(run.dir, "digest", every=20)
        assert known is not None
        calibrated.reuse(run.dir, known, execution.id, execution.dir)
    collect(execution.dir, None)
    if not reuse:
        calibrated.remember(run.dir, "digest", execution.id, execution.dir)


def verdicts(run: RunDir) -> list[dict[str, Any]]:
    return [read_json(execution.dir / "verdict.json") for execution in run.executions]


def test_a_point_that_reuses_a_calibration_passes_as_itself(measured: RunDir) -> None:
    judge(measured, 1)
    judge(measured, 2, reuse=True)
    judge(measured, 3)
    judge_calibrations(measured)
    assert [each["reasons"] for each in verdicts(measured)] == [[], [], []]
    found = [read_json(execution.dir / "manifest.json")["run"] for execution in measured.executions]
    assert found == [execution.id for execution in measured.executions]


def test_a_point_whose_calibration_is_disproved_is_invalid(measured: RunDir) -> None:
    for ping in measured.executions[2].dir.glob("raw/*/calibration/ping-*.txt"):
        ping.write_text(re.sub(r"time=[0-9.]+", "time=70", ping.read_text()))
    judge(measured, 1)
    judge(measured, 2, reuse=True)
    judge(measured, 3)
    for _ in range(2):  # the second time finds it done
        judge_calibrations(measured)
    render_points(measured)
    found = verdicts(measured)
    assert [each["state"] for each in found] == ["passed", "invalid", "invalid"]
    (reason,) = found[1]["reasons"]
    of = "its calibration is that of point 1 of 3, and the next of its path, that of point 3 of 3,"
    assert reason.startswith(f"path: {of} does not hold: ")
    assert reason in html.unescape((measured.executions[1].dir / "report.html").read_text())
    assert summarise(measured)["state"] == "invalid"


def test_the_correction_of_a_path_is_known_from_its_first_point_on(tmp_path: Path) -> None:
    assert own_delay.known_us(tmp_path, asked()["path"]) is None
    own_delay.remember(tmp_path, asked()["path"], 250)
    assert own_delay.known_us(tmp_path, asked()["path"]) == 250
    assert own_delay.known_us(tmp_path, asked(rate_bps=1)["path"]) is None


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


PACKS = """#!/bin/sh
[ "$1" = archive ] && tar -czf "$2.tgz" -C "$2" . && cat "$2/padding" >>"$2.tgz"
"""
HAS_NO_SPACE = """#!/bin/sh
echo "packing $2: no space left on device" >&2; exit 1
"""


@dataclass
class Host:
    """A host that this machine plays, with a program in place of the agent."""

    bin: Path
    asked: int = 0

    def shell(self, line: str) -> str:
        self.asked += 1
        path = f"{self.bin}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
        )
        return output(line, done.returncode, done.stdout + done.stderr)


def host_with(agent: str, folder: Path) -> Host:
    host = Host(folder / "bin")
    host.bin.mkdir()
    (host.bin / "dumbbell-agent").write_text(agent)
    (host.bin / "dumbbell-agent").chmod(0o755)
    return host


CONTENTS = {"one": bytes(range(256)) * 9, "the other": b"x"}


def homes_of(folder: Path, padding: int = 0) -> dict[str, Path]:
    """Directories of agents, and where they go."""
    for name, content in CONTENTS.items():
        (folder / name).mkdir()
        (folder / name / "events.jsonl").write_bytes(content)
        (folder / name / "padding").write_bytes(bytes(padding if name == "one" else 0))
    (folder / "home").mkdir()
    return {str(folder / name): folder / "home" / f"{name}.tgz" for name in CONTENTS}


def come_home(homes: dict[str, Path]) -> bool:
    for to in homes.values():
        archive.unpack(to, to.with_suffix(""))
    found = {to.stem: (to.with_suffix("") / "events.jsonl").read_bytes() for to in homes.values()}
    return found == CONTENTS


@pytest.mark.parametrize("padding", [0, 1 << 20])
def test_archives_come_home_and_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, padding: int
) -> None:
    monkeypatch.setattr(archive, "PIECE_BYTES", 1 << 18 if padding else 100)
    packs, homes = host_with(PACKS, tmp_path), homes_of(tmp_path, padding)
    archive.fetch(packs.shell, homes, f"touch {shlex.quote(str(tmp_path / 'fetched'))}")
    assert (tmp_path / "fetched").exists()
    assert packs.asked > 4 if padding else packs.asked >= 1
    for folder, to in homes.items():
        assert to.read_bytes() == Path(f"{folder}.tgz").read_bytes()
    assert come_home(homes)


def test_archives_of_a_host_whose_disk_is_full_come_home(tmp_path: Path) -> None:
    full, homes = host_with(HAS_NO_SPACE, tmp_path), homes_of(tmp_path)
    archive.fetch(full.shell, homes)
    assert full.asked == 1
    assert come_home(homes)


def test_what_is_not_there_cannot_come_home(tmp_path: Path) -> None:
    packs = host_with(PACKS, tmp_path)
    with pytest.raises(Trouble, match=r"none.*dumbbell-agent archive .* failed: .*tar: .*none"):
        archive.fetch(packs.shell, {str(tmp_path / "none"): tmp_path / "none.tgz"})


def test_what_is_not_there_cannot_come_home_from_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match=r"failed: packing .*none: no space left on device"):
        archive.fetch(
            host_with(HAS_NO_SPACE, tmp_path).shell, {str(tmp_path / "none"): tmp_path / "none.tgz"}
        )


def test_a_long_line_that_failed_is_named_by_its_begin() -> None:
    line = "dumbbell-agent archive /var/lib/dumbbell/runs/r1/measurement && " + "true && " * 50 + "base64"
    with pytest.raises(
        Trouble, match=r"^`dumbbell-agent archive .* \.\.\.` failed: no space left$"
    ) as caught:
        output(line, 1, "no space\nleft")
    assert "base64" not in str(caught.value)


def test_an_archive_that_is_cut_short_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "phase.tgz").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(OSError, match="cannot be unpacked"):
        archive.unpack(tmp_path / "phase.tgz", tmp_path / "home")


def test_rows_of_a_reused_calibration_are_those_of_the_point_that_made_it(tmp_path: Path) -> None:
    rows = {"snmp": pl.DataFrame({"phase": ["calibration", "measurement"]}), "none": pl.DataFrame()}
    run = SimpleNamespace(dir=tmp_path)
    assert own_rows(run, rows)["snmp"].height == 2  # type: ignore[arg-type]
    (tmp_path / calibrated.REUSED).write_text("{}")
    assert own_rows(run, rows)["snmp"]["phase"].to_list() == ["measurement"]  # type: ignore[arg-type]
