"""A run of two points whose controller dies in the middle of the first, and is resumed."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from lab import Lab
from waiting import wait_until

from playbooks import ansible_playbook, start_playbook

pytestmark = pytest.mark.e2e

SCENARIO = Path(__file__).with_name("two_points.yml")
TIMEOUT_S = 900


@dataclass(frozen=True)
class Resumed:
    """The run directory, what resuming said, and what the first point's agents had been told before."""

    dir: Path
    output: str
    first_t0: str

    def json(self, path: str) -> Any:
        return json.loads((self.dir / path).read_text())

    def states(self, point: str) -> list[tuple[str, str]]:
        lines = (self.dir / "points" / point / "events.jsonl").read_text().splitlines()
        events = [event for event in map(json.loads, lines) if event["event"] == "state"]
        return [(event["state"], event["reason"]) for event in events]


@pytest.fixture(scope="module")
def resumed(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    folder = tmp_path_factory.mktemp("sweep")
    results = folder / "results"
    events = results / "latest" / "points" / "001" / "events.jsonl"
    measuring = '"state": "running", "reason": "measurement"'
    arguments = ("-e", f"scenario={SCENARIO}", "-e", f"results_dir={results}")
    with (
        (folder / "said").open("w") as said,
        start_playbook("playbooks/run.yml", *arguments, said=said) as run,
    ):
        try:
            wait_until(lambda: events.exists() and measuring in events.read_text(), run)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    run_dir = (results / "latest").resolve()
    told = lab.ssh("sender1", f"cat /var/lib/dumbbell/runs/{run_dir.name}_001/measurement/start.json")
    assert not (run_dir / "points" / "001" / "verdict.json").exists()
    _, output = ansible_playbook("playbooks/resume.yml", "-e", f"run={run_dir}", timeout_s=TIMEOUT_S)
    return Resumed(run_dir, output, told)


def test_every_point_has_a_result(resumed: Resumed) -> None:
    points = resumed.json("verdict.json")["points"]
    assert [point["levels"] for point in points] == [{"congestion_control": c} for c in ("cubic", "reno")]
    # A busy machine's are `invalid`, which is a result too.
    assert {point["state"] for point in points} <= {"passed", "invalid"}, resumed.output[-4000:]
    flows = pl.read_parquet(resumed.dir / "flows.parquet")
    assert flows["level_congestion_control"].to_list() == ["cubic", "reno"]
    assert flows["congestion_control_measured"].to_list() == ["cubic", "reno"]
    assert all(goodput > 10e6 for goodput in flows["goodput_bps"])


def test_none_was_run_twice(resumed: Resumed) -> None:
    assert sorted(path.name for path in (resumed.dir / "points").iterdir()) == ["001", "002"]
    for point in ("001", "002"):
        assert resumed.states(point).count(("armed", "measurement")) == 1
    # The agents went on with what they had been told before the controller died.
    for host in ("sender1", "receiver1", "router"):
        assert (resumed.dir / f"points/001/raw/{host}/measurement/start.json").read_text() == resumed.first_t0
        assert resumed.json(f"points/001/raw/{host}/measurement/status.json")["state"] == "done"


def test_no_row_is_missing(resumed: Resumed) -> None:
    for point in ("001", "002"):
        rows = resumed.json(f"points/{point}/manifest.json")["rows"]
        assert rows["lost"] == 0
        assert rows["spooled"]["tcp_info"] == rows["influxdb"]["tcp_info"]["stored"] > 100


def test_the_page_leads_to_both(resumed: Resumed) -> None:
    page = (resumed.dir / "report.html").read_text()
    for point in ("001", "002"):
        assert f'href="points/{point}/report.html"' in page
        assert (resumed.dir / "points" / point / "report.html").exists()


def test_the_hosts_are_free_again(resumed: Resumed, lab: Lab) -> None:
    for host in ("sender1", "receiver1", "router"):
        assert json.loads(lab.ssh(host, "cat /var/lib/dumbbell/runs/lock.json"))["run_id"] == ""


def test_there_is_nothing_left_to_resume(resumed: Resumed) -> None:
    before = resumed.states("002")
    _, said = ansible_playbook("playbooks/resume.yml", "-e", f"run={resumed.dir}", timeout_s=TIMEOUT_S)
    assert resumed.states("002") == before
    assert "Traceback" not in said
