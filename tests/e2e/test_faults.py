"""Runs in which something breaks: never a wrong `passed`, and hosts that can be used at once."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from lab import Lab
from runs import Kept, S
from waiting import MEASURING, PREPARING, TIMEOUT_S, run_until_measuring, wait_until

from dumbbell.ingest.influx import InfluxError
from dumbbell.run.content import Run
from playbooks import ansible_playbook

pytestmark = pytest.mark.e2e

SCENARIO = Path(__file__).with_name("ten_seconds.yml")
CUT_S = 60
HOSTS = ("sender1", "sender2", "receiver1", "receiver2", "router")

RUNS = "/var/lib/dumbbell/runs"
CLOCKS_NS = {"sender1": 2_000_000, "receiver1": -4_000_000, "router": 5_000_000_000}  # by which they are set


# adjtimex(2) with ADJ_SETOFFSET | ADJ_NANO: the step is exact, however busy the host is.
SET_CLOCK = """
import ctypes, struct, sys
timex = bytearray(208)
struct.pack_into("I", timex, 0, 0x0100 | 0x2000)
struct.pack_into("qq", timex, 72, *divmod(int(sys.argv[1]), 10**9))
sys.exit(ctypes.CDLL(None).adjtimex((ctypes.c_char * 208).from_buffer(timex)) < 0)
"""


def set_clock(host: str) -> str:
    return shlex.join(["python3", "-c", SET_CLOCK, str(CLOCKS_NS[host])])


# A login may take longer than the measurement while a host samples each 10 ms: faults log in before.
AT_3_S = (
    "until t0=$(grep --only-matching '[0-9]\\{{19\\}}' {file} 2>/dev/null) && "
    "test $(date +%s%N) -gt $((t0 + 3000000000)); do sleep 0.2; done; "
)
FAULTS = {
    "sender1": f"pkill -KILL --newest --exact iperf3 && {set_clock('sender1')}",
    "sender2": "date +%s%N; systemctl kill --signal=KILL 'dumbbell-agent@*measurement*'",
    "receiver1": f"{set_clock('receiver1')}; head --bytes=2M /dev/zero > {RUNS}/filler || true",
    "receiver2": "systemctl --no-block reboot --force",
    "router": set_clock("router"),
}
RESULT = {"passed", "invalid"}  # where a fault does no harm: on a busy machine it may be `invalid`


@dataclass(frozen=True)
class Met(Kept):
    """A run that met faults while it measured, and what was said on each host."""

    said: dict[str, str] = field(default_factory=dict)

    def blames(self, words: str) -> bool:
        return any(words in reason for reason in self.json("verdict.json")["reasons"])

    def rows_arrived(self) -> bool:
        """Whether InfluxDB has every row of the spools."""
        stored = self.json("manifest.json")["rows"]["influxdb"].values()
        return all(rows["spooled"] == rows["stored"] > 0 for rows in stored)


def run_with(folder: Path, fault: Callable[[], object], *extra: str, state: str = MEASURING) -> Met:
    """Runs the scenario with a fault while it measures, or from another state on."""

    def meet(playbook: subprocess.Popen[str]) -> None:
        try:
            fault()
        finally:  # also after a fault that failed: its end gives the hosts back
            playbook.wait(timeout=TIMEOUT_S)

    run_dir, said, _ = run_until_measuring(SCENARIO, folder, meet, "-e", "profile=often", *extra, state=state)
    assert "Traceback" not in said
    return Met(run_dir)


@pytest.fixture(autouse=True)
def _nothing_is_left_on_the_hosts(lab: Lab) -> Iterator[None]:
    yield
    busy = {host: lab.ssh(host, "pgrep --list-name 'iperf3|dumbbell' || true") for host in HOSTS}
    assert busy == dict.fromkeys(HOSTS, "")
    assert {host: lab.holder(host) for host in HOSTS} == dict.fromkeys(HOSTS, "")


# --- what ends a measurement: on each host another fault, all at once ------------------------------


@pytest.fixture(scope="module")
def broken(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Met:
    said: dict[str, str] = {}
    folder = tmp_path_factory.mktemp("broken")

    def fault() -> None:
        run_id = (folder / "results" / "latest").resolve().name
        wait = AT_3_S.format(file=f"{RUNS}/{run_id}/measurement/start.json")

        def meet(host: str) -> str:
            return lab.ssh(host, wait + FAULTS[host], timeout_s=TIMEOUT_S)

        with ThreadPoolExecutor() as beside:
            said.update(zip(FAULTS, beside.map(meet, FAULTS), strict=True))

    disk = f"mount -t tmpfs -o size=2m,mode=0750,uid=dumbbell,gid=dumbbell runs {RUNS}"
    lab.ssh("receiver1", disk)
    try:
        return Met(run_with(folder, fault, state=PREPARING).dir, said)
    finally:
        lab.ssh("receiver1", f"umount --lazy {RUNS}")
        for host in CLOCKS_NS:
            lab.ssh(host, "chronyc makestep && chronyc waitsync 60 0.001")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("iperf3_client flow1", id="an iperf3 dies"),
        pytest.param(
            "sender2 measurement: the agent's measurement ended failed: "
            "the agent was killed while it was running",
            id="an agent is killed",
        ),
        pytest.param("sender2: the agent was killed: its last row is of ", id="what a kill costs"),
        pytest.param("no space left on device", id="a disk is full"),
        pytest.param("receiver2", id="a receiver reboots"),
        pytest.param("router measurement: largest step of the clock is 5", id="a clock is set"),
    ],
)
def test_a_run_is_invalid_and_names_its_fault(broken: Met, words: str) -> None:
    assert broken.state == "invalid"
    assert broken.blames(words), broken.json("verdict.json")["reasons"]


@pytest.mark.parametrize("host", CLOCKS_NS)
def test_how_far_a_clock_was_set_is_known(broken: Met, host: str) -> None:
    event = Run.open(broken.dir).event("clock_watched", host=host, phase="measurement")
    assert event is not None
    assert event["largest_step_ns"] == pytest.approx(CLOCKS_NS[host], abs=1_000_000)


def test_what_was_measured_before_is_kept(broken: Met) -> None:
    assert broken.json("raw/router/measurement/status.json")["state"] == "done"
    assert broken.rows_arrived()


def test_a_killed_agent_loses_its_last_second_at_most(broken: Met) -> None:
    run = Run.open(broken.dir)
    run.read_spools()
    last = run.last_row_unix_ns("sender2", "measurement")
    assert last is not None
    assert int(broken.said["sender2"]) - last < 1.2 * S  # a second, and a tick that came late
    facts = broken.json("manifest.json")["facts"]
    lost = {fact["subject"]: fact["measured"] for fact in facts if fact["name"] == "samples lost"}
    assert list(lost) == ["sender2"]
    assert lost["sender2"] > 0


# --- what does no harm ----------------------------------------------------------------------------


def test_telegraf_and_influxdb_that_are_killed(lab: Lab, tmp_path: Path) -> None:
    killed = [(host, "telegraf") for host in HOSTS] + [("archive", "influxdb")]
    met = run_with(
        tmp_path, lambda: [lab.ssh(host, f"systemctl kill --signal=KILL {name}") for host, name in killed]
    )
    assert met.state in RESULT
    assert met.rows_arrived()


@pytest.mark.long
def test_a_network_that_is_cut(lab: Lab, tmp_path: Path) -> None:
    """Between controller and hosts, from while the agents measure until long after they have ended."""

    def cut() -> None:
        port = ("ip", "-n", "dumbbell", "link", "set", "controller")
        subprocess.run([*port, "down"], check=True)
        try:
            time.sleep(CUT_S)
        finally:
            subprocess.run([*port, "up"], check=True)

    met = run_with(tmp_path, cut)
    assert met.state in RESULT
    assert not met.blames("run: ")
    assert met.rows_arrived()


@pytest.mark.long
def test_a_host_that_stays_away(lab: Lab, tmp_path: Path) -> None:
    """What the others measured comes home, and once it is back it is given back."""
    port = ("bridge", "-n", "dumbbell", "link", "set", "dev", "receiver2.0", "state")
    try:
        cut = [*port, "disabled"]
        met = run_with(tmp_path, lambda: subprocess.run(cut, check=True), "-e", "run_answer_timeout=20")
    finally:
        subprocess.run([*port, "forwarding"], check=True)
    assert met.state == "invalid"
    assert met.blames("receiver2 no longer answers")
    for host in HOSTS:
        assert (met.dir / "raw" / host / "measurement" / "status.json").exists() == (host != "receiver2")
    ansible_playbook("playbooks/resume.yml", "-e", f"run={met.dir}")


@pytest.mark.long
def test_a_host_whose_connections_hang(lab: Lab, tmp_path: Path) -> None:
    """What is asked over them never comes to an end: the run connects anew, and nothing is lost."""
    # All that serves a connection, but for the one over which this is said.
    frozen = "kill -{signal} $(pgrep --full '^sshd: root' | grep --line-regexp --invert-match $PPID)"
    try:
        met = run_with(tmp_path, lambda: lab.ssh("receiver2", frozen.format(signal="STOP")))
    finally:
        lab.ssh("receiver2", frozen.format(signal="CONT"))
    assert met.state == "passed"
    for host in HOSTS:
        assert (met.dir / "raw" / host / "measurement" / "status.json").exists()


@pytest.mark.long
def test_an_influxdb_that_is_away(lab: Lab, tmp_path: Path) -> None:
    """From the run's beginning until after its end: then every row arrives by itself."""
    lab.ssh("archive", "systemctl stop influxdb")
    try:
        met = run_with(tmp_path, lambda: None)
        assert met.state == "invalid"
        assert met.blames("InfluxDB: number of its rows not known: InfluxDB at http")
    finally:
        lab.ssh("archive", "systemctl start influxdb")
    spooled = {name: rows for name, rows in met.json("manifest.json")["rows"]["spooled"].items() if rows}
    with lab.influx() as influx:

        def arrived() -> bool:
            try:
                return influx.counts(spooled, met.dir.name) == spooled
            except InfluxError:  # it is not up yet
                return False

        wait_until(arrived)
    ansible_playbook("playbooks/collect.yml", "-e", f"run={met.dir}")
    assert met.state in RESULT
    assert not met.blames("InfluxDB")
    assert met.rows_arrived()
