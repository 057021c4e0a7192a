"""Runs in which something breaks: never a wrong `passed`, and hosts that can be used at once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from waiting import wait_until

from playbooks import start_playbook

pytestmark = pytest.mark.e2e

SCENARIO = Path(__file__).with_name("ten_seconds.yml")


def run_with(fault: Callable[[], object], folder: Path) -> tuple[Path, str]:
    """The run directory and what was said, of a run that meets a fault while it measures."""
    results = folder / "results"
    events = results / "latest" / "events.jsonl"
    measuring = '"state": "running", "reason": "measurement"'
    arguments = ("-e", f"scenario={SCENARIO}", "-e", f"results_dir={results}")
    said = folder / "said"
    with said.open("w") as file, start_playbook("playbooks/run.yml", *arguments, said=file) as playbook:
        try:
            wait_until(lambda: events.exists() and measuring in events.read_text(), playbook)
            fault()
            playbook.wait(timeout=600)
        finally:
            if playbook.poll() is None:
                os.killpg(playbook.pid, signal.SIGKILL)
    assert playbook.returncode != 0
    return (results / "latest").resolve(), said.read_text()


def verdict(run_dir: Path) -> Any:
    return json.loads((run_dir / "verdict.json").read_text())


def left_behind(lab: Lab, hosts: tuple[str, ...]) -> list[str]:
    """Processes of a run, and locks, that should be gone."""
    look = "pgrep --list-full 'iperf3|dumbbell-agent'; cat /var/lib/dumbbell/runs/lock.json"
    free = '{"run_id":""'
    return [found for host in hosts if not (found := lab.ssh(host, look)).startswith(free)]


def test_a_receiver_that_reboots(lab: Lab, tmp_path: Path) -> None:
    run_dir, said = run_with(lambda: lab.ssh("receiver1", "systemctl --no-block reboot --force"), tmp_path)
    found = verdict(run_dir)
    assert found["state"] == "invalid", said[-4000:]
    assert any("receiver1" in reason for reason in found["reasons"]), found["reasons"]
    assert left_behind(lab, ("sender1", "sender2", "receiver1", "receiver2", "router")) == []
    # What the others measured came home.
    assert json.loads((run_dir / "raw/sender2/measurement/status.json").read_text())["state"] == "done"
    assert "Traceback" not in said


def test_an_agent_that_is_killed(lab: Lab, tmp_path: Path) -> None:
    kill = "systemctl kill --signal=KILL 'dumbbell-agent@*measurement*'"
    run_dir, said = run_with(lambda: lab.ssh("sender1", kill), tmp_path)
    found = verdict(run_dir)
    assert found["state"] == "invalid", said[-4000:]
    reason = (
        "sender1 measurement: the agent's measurement ended failed: the agent was killed while it was running"
    )
    assert any(reason in each for each in found["reasons"]), found["reasons"]
    assert left_behind(lab, ("sender1", "sender2", "receiver1", "receiver2", "router")) == []
    rows = json.loads((run_dir / "manifest.json").read_text())["rows"]
    assert rows["spooled"]["tcp_info"] == rows["influxdb"]["tcp_info"]["stored"] > 0
    assert "Traceback" not in said
