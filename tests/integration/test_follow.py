"""A phase is followed on a terminal, where Ctrl-C asks what to do, and in a log."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pexpect
import pytest
from synthetic import inventory

from dumbbell.plan import plan
from dumbbell.run.directory import RunDir
from dumbbell.run.record import read_jsonl
from playbooks import BIN, REPOSITORY, ansible_playbook

SCENARIO = REPOSITORY / "tests/e2e/ten_seconds.yml"
PLAYBOOK = "tests/integration/playbooks/follow.yml"
TIMEOUT_S = 120
CTRL_C = "\x03"
ASKS = r"\[d\]etach.*\[s\]top.*\[c\]ontinue"
INTERRUPTED = 99  # Ansible's own exit code


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return RunDir.create(plan(SCENARIO, inventory()), SCENARIO, tmp_path / "results").dir


def on_a_terminal(run_dir: Path) -> tuple[pexpect.spawn[str], io.StringIO]:
    """The playbook on a terminal of 70 columns, and everything that it writes there."""
    screen = io.StringIO()
    playbook = pexpect.spawn(
        str(BIN / "ansible-playbook"),
        ["--inventory", "localhost,", PLAYBOOK, "-e", f"run={run_dir}"],
        cwd=str(REPOSITORY),
        dimensions=(24, 70),
        timeout=TIMEOUT_S,
        encoding="utf-8",
    )
    playbook.logfile_read = screen
    return playbook, screen


def at_second(playbook: pexpect.spawn[str], seconds: str) -> None:
    """Waits for one of these of the ten: a busy machine does not draw every second."""
    playbook.expect(f"00:({seconds}) of 00:10, 00:([0-9]+) left")
    assert playbook.match is not None
    gone, left = playbook.match.groups()
    assert int(gone) + int(left) == 10


def ended(playbook: pexpect.spawn[str]) -> int:
    playbook.expect(pexpect.EOF)
    playbook.close()
    return int(playbook.exitstatus)


def states(run_dir: Path) -> list[str]:
    return [event["state"] for event in read_jsonl(run_dir / "events.jsonl")]


def test_one_line_is_drawn_again_and_again(run_dir: Path) -> None:
    playbook, screen = on_a_terminal(run_dir)
    playbook.expect("starts in")
    at_second(playbook, "0[3-7]")
    playbook.send(CTRL_C)
    playbook.expect(ASKS)
    playbook.send("c\r")
    at_second(playbook, "0[89]|10")
    playbook.expect("went on, stopped: not")
    assert ended(playbook) == 0
    drawn = re.findall(r"\x1b\[A\r(.*)\x1b\[K\r\n", screen.getvalue())
    assert len(drawn) > 4
    assert all(line.startswith("point 2 of 3 measurement") and len(line) <= 70 for line in drawn), drawn
    assert states(run_dir) == ["planned", "running"]


def test_who_detaches_is_told_how_to_go_on(run_dir: Path) -> None:
    playbook, _ = on_a_terminal(run_dir)
    at_second(playbook, "0[2-8]")
    playbook.send(CTRL_C)
    playbook.expect(ASKS)
    playbook.send("d\r")
    playbook.expect(f"fab follow --run={run_dir}")
    playbook.expect(f"playbooks/resume.yml -e run={run_dir}")
    playbook.expect(f"playbooks/stop.yml -e run={run_dir}")
    assert ended(playbook) == INTERRUPTED
    assert "went on" not in (playbook.before or "")


def test_who_stops_ends_the_phase_before_its_time(run_dir: Path) -> None:
    playbook, _ = on_a_terminal(run_dir)
    playbook.expect("starts in")
    playbook.send(CTRL_C)
    playbook.expect(ASKS)
    playbook.send("s\r")
    playbook.expect("went on, stopped: the measurement was stopped by hand")
    assert ended(playbook) == 0
    assert "running" not in states(run_dir)


def test_a_log_is_quiet(run_dir: Path) -> None:
    code, said = ansible_playbook("--inventory", "localhost,", PLAYBOOK, "-e", f"run={run_dir}")
    assert code == 0
    assert re.findall(r"[^\n\x20-\x7e]", said) == []
    lines = [line for line in said.splitlines() if line.startswith("point 2 of 3 measurement")]
    assert len(lines) == 2  # before it starts, and in each of its tens of seconds
    assert "of 00:10" in lines[1]
    assert "went on, stopped: not" in said
    assert states(run_dir) == ["planned", "running"]
