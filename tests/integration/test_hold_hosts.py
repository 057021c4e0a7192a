"""Playbooks that change hosts take them by the lock of runs, and give them back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from playbooks import ansible_playbook, put_first, unfolded

# The agent's command writes down what it was told; it refuses what `holder` names.
AGENT = """\
#!/bin/sh
echo "$@" >>{dir}/said
[ "$1" = unlock ] || [ ! -e {dir}/holder ] || {{ cat {dir}/holder >&2; exit 1; }}
"""
HELD = "the host belongs to run night-7 of anna@elsewhere until 2030-01-01T00:00:00Z"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the hosts' agent writes down what it was told."""
    put_first(monkeypatch, tmp_path / "bin/dumbbell-agent", AGENT.format(dir=tmp_path))
    return tmp_path


def play(dir: Path, **variables: object) -> tuple[int, str]:
    return ansible_playbook(
        *("-i", "a,b,", "tests/integration/playbooks/hold.yml"),
        *("-e", json.dumps({"dir": str(dir)} | variables)),
        *("-e", "ansible_connection=local", "-e", "ansible_python_interpreter=/usr/bin/python3"),
    )


def words(agent: Path) -> list[list[str]]:
    return [line.split() for line in (agent / "said").read_text().splitlines()]


@pytest.mark.parametrize("fails", [False, True])
def test_a_host_is_taken_and_given_back_whatever_happens(agent: Path, fails: bool) -> None:
    code, text = play(agent, fails=fails)
    assert (code != 0) == fails, text
    said = words(agent)
    assert [word for word, *_ in said] == ["lock", "lock", "unlock", "unlock"]
    holders = {argument for _, argument, *_ in said}
    assert len(holders) == 1  # what was taken is given back
    assert holders.pop().startswith("--run=test-")
    assert all("--for=2h" in line for line in said[:2])
    assert (agent / "changed").exists()


def test_a_host_of_another_is_refused_by_the_name_of_its_holder(agent: Path) -> None:
    (agent / "holder").write_text(HELD)
    code, text = play(agent)
    assert code != 0
    assert HELD in unfolded(text)
    assert not (agent / "changed").exists()
    assert [word for word, *_ in words(agent)] == ["lock", "lock", "unlock", "unlock"]


def test_a_check_takes_nothing(agent: Path) -> None:
    code, text = ansible_playbook(
        *("-i", "a,", "tests/integration/playbooks/hold.yml", "--check", "-e", f"dir={agent}"),
        *("-e", "ansible_connection=local", "-e", "ansible_python_interpreter=/usr/bin/python3"),
    )
    assert code == 0, text
    assert not (agent / "said").exists()


def test_a_host_without_the_agent_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    code, text = play(tmp_path)
    assert code == 0, text
    assert (tmp_path / "changed").exists()
