"""The engine as a program on a host: here a directory of this machine stands for the host's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dumbbell.execution import engine
from dumbbell.execution.reach import Trouble, output


class Host:
    """Runs shell lines, and counts them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def shell(self, line: str, stdin: bytes | None = None) -> str:
        self.lines.append(line)
        done = subprocess.run(["sh", "-c", f"{{ {line}; }} 2>&1"], input=stdin, stdout=-1, check=False)
        return output(line, done.returncode, done.stdout.decode())

    def call(self, check: bool = True, **arguments: Any) -> dict[str, Any]:
        return engine.call(self.shell, sys.executable, check=check, arguments={"asked": [], **arguments})


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(engine, "PLACE", str(tmp_path / "engine"))
    return Host()


def test_a_host_gets_the_engine_once(host: Host, tmp_path: Path) -> None:
    first = host.call()
    assert first["state"]["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert len(host.lines) == 3  # it is missing, it is sent, it is called
    host.call()
    assert len(host.lines) == 4
    assert [path.name for path in (tmp_path / "engine").iterdir()] == [engine.packed()[0]]


def test_its_files_are_compiled_once(host: Host, tmp_path: Path) -> None:
    host.call()
    compiled = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.pyc")}
    assert compiled
    host.call()
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.pyc")} == compiled


def test_two_runs_may_send_it_at_the_same_time(host: Host, tmp_path: Path) -> None:
    version, archive = engine.packed()
    lines = [engine._install(version) for _ in range(4)]
    begun = [subprocess.Popen(["sh", "-c", line], stdin=subprocess.PIPE) for line in lines]
    for process in begun:
        process.communicate(archive)
    assert [process.returncode for process in begun] == [0] * 4
    assert [path.name for path in (tmp_path / "engine").iterdir()] == [version]
    host.call()


def test_others_may_not_read_or_change_it(host: Host, tmp_path: Path) -> None:
    host.call()
    assert (tmp_path / "engine" / engine.packed()[0]).stat().st_mode & 0o777 == 0o700


def test_what_the_host_lacks_is_said_without_a_traceback(host: Host) -> None:
    with pytest.raises(Trouble) as caught:
        host.call(programs=["no-such-program"])
    assert str(caught.value) == "it lacks no-such-program: provision it first (playbooks/provision.yml)"


def test_an_error_of_the_engine_is_said_in_a_line(host: Host) -> None:
    with pytest.raises(Trouble, match=r"^KeyError: 'interfaces'$"):
        host.call(asked=[{}])


def test_what_a_shell_says_before_the_answer_is_not_read(host: Host) -> None:
    host.call()

    def after_a_greeting(line: str, stdin: bytes | None) -> str:
        return "Last login: today\n" + host.shell(line, stdin)

    answer = engine.call(after_a_greeting, sys.executable, check=True, arguments={"asked": []})
    assert answer["changed"] is False
