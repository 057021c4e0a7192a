"""A run of two points whose controller dies in the middle of the first, and is resumed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from lab import Lab
from runs import Kept
from waiting import TIMEOUT_S, run_until_measuring

from dumbbell.run.record import read_jsonl
from playbooks import ansible_playbook

pytestmark = pytest.mark.e2e

SCENARIO = Path(__file__).with_name("two_points.yml")


@dataclass(frozen=True)
class Resumed(Kept):
    """The run directory, what resuming said, and what the first point's agents had been told before."""

    output: str
    first_t0: str

    def states(self, point: str) -> list[tuple[str, str]]:
        events = read_jsonl(self.dir / "points" / point / "events.jsonl")
        return [(event["state"], event["reason"]) for event in events if event["event"] == "state"]


@pytest.fixture(scope="module")
def resumed(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    folder = tmp_path_factory.mktemp("sweep")
    run_dir, _, _ = run_until_measuring(SCENARIO, folder, lambda _: None, point="points/001")
    told = lab.ssh("sender1", f"cat /var/lib/dumbbell/runs/{run_dir.name}_001/measurement/start.json")
    assert not (run_dir / "points" / "001" / "verdict.json").exists()
    meanwhile = ("-e", f"scenario={SCENARIO}", "-e", f"results_dir={folder / 'other'}")
    ansible_playbook("playbooks/run.yml", *meanwhile, timeout_s=TIMEOUT_S)
    _, output = ansible_playbook("playbooks/resume.yml", "-e", f"run={run_dir}", timeout_s=TIMEOUT_S)
    return Resumed(run_dir, output, told)


def test_another_run_is_refused_meanwhile(resumed: Resumed) -> None:
    (verdict,) = resumed.dir.parents[1].glob("other/latest/verdict.json")
    found = json.loads(verdict.read_text())
    assert found["state"] == "aborted"
    for host in ("sender1", "receiver1", "router"):
        assert any(
            reason.startswith(host) and f"the host belongs to run {resumed.dir.name} of " in reason
            for reason in found["reasons"]
        ), found["reasons"]


def test_every_point_has_a_result(resumed: Resumed) -> None:
    points = resumed.json("verdict.json")["points"]
    assert [point["levels"] for point in points] == [{"congestion_control": c} for c in ("cubic", "reno")]
    # A busy machine's are `invalid`, which is a result too.
    assert {point["state"] for point in points} <= {"passed", "invalid"}, resumed.output[-4000:]
    flows = pl.read_parquet(resumed.dir / "flows.parquet")
    assert flows["level_congestion_control"].to_list() == ["cubic", "reno"]
    assert flows["congestion_control_measured"].to_list() == ["cubic", "reno"]
    assert all(0 < goodput < 20e6 for goodput in flows["goodput_bps"])


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
        assert lab.holder(host) == ""


def test_there_is_nothing_left_to_resume(resumed: Resumed) -> None:
    before = resumed.states("002")
    _, said = ansible_playbook("playbooks/resume.yml", "-e", f"run={resumed.dir}", timeout_s=TIMEOUT_S)
    assert resumed.states("002") == before
    assert "Traceback" not in said
