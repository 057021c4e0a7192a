"""A run that is followed on a terminal and interrupted there: what the agents do then, and what is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pexpect
import pytest
from lab import Lab
from waiting import TIMEOUT_S

from playbooks import BIN, REPOSITORY, ansible_playbook

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SCENARIO = Path(__file__).with_name("two_points.yml")
HOSTS = ("sender1", "receiver1", "router")


def interrupted(folder: Path, when: str, answer: str) -> tuple[Path, int | None, str]:
    """Directory, exit code and last words of a run that is interrupted in its first measurement."""
    results = folder / "results"
    arguments = ["playbooks/run.yml", "-e", f"scenario={SCENARIO}", "-e", f"results_dir={results}"]
    playbook = pexpect.spawn(
        str(BIN / "ansible-playbook"),
        arguments,
        cwd=str(REPOSITORY),
        dimensions=(24, 120),
        timeout=TIMEOUT_S,
        encoding="utf-8",
    )
    playbook.expect(f"point 1 of 2 measurement: .*{when}")
    playbook.send("\x03")
    playbook.expect(r"\[d\]etach")
    playbook.send(f"{answer}\r")
    playbook.expect(pexpect.EOF)
    playbook.close()
    return (results / "latest").resolve(), playbook.exitstatus, str(playbook.before)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_who_stops_has_a_verdict_on_what_there_is(lab: Lab, tmp_path: Path) -> None:
    run_dir, code, said = interrupted(tmp_path, "00:0[3-9] of 00:10", "s")
    assert code not in (0, None)
    assert f"playbooks/resume.yml -e run={run_dir}" in " ".join(said.split())
    verdict = read(run_dir / "points/001/verdict.json")
    assert verdict["state"] == "invalid"
    assert any("the measurement was stopped by hand" in reason for reason in verdict["reasons"])
    assert read(run_dir / "points/001/manifest.json")["rows"]["spooled"]["tcp_info"] > 0
    for host in HOSTS:
        assert read(run_dir / f"points/001/raw/{host}/measurement/status.json")["state"] != "done"
        assert lab.holder(host) == ""
        assert lab.ssh(host, "systemctl list-units --plain --no-legend 'dumbbell-agent@*'") == ""
    assert not (run_dir / "points/002/verdict.json").exists()


def test_who_detaches_leaves_the_agents_at_work(lab: Lab, tmp_path: Path) -> None:
    run_dir, _, said = interrupted(tmp_path, "1 of 1 flows alive", "d")
    assert "The agents go on alone." in said
    assert not (run_dir / "points/001/verdict.json").exists()
    t0 = lab.ssh("sender1", f"cat /var/lib/dumbbell/runs/{run_dir.name}_001/measurement/start.json")
    _, said = ansible_playbook("playbooks/resume.yml", "-e", f"run={run_dir}", timeout_s=TIMEOUT_S)
    for host in HOSTS:
        assert read(run_dir / f"points/001/raw/{host}/measurement/status.json")["state"] == "done", said[
            -4000:
        ]
        assert (run_dir / f"points/001/raw/{host}/measurement/start.json").read_text() == t0
    assert read(run_dir / "points/002/verdict.json")["state"] in ("passed", "invalid")
