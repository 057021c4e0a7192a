"""Whether ``make lab`` has anything to do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from playbooks import REPOSITORY

IS_UP = REPOSITORY / "roles/lab/files/is_up.sh"


@pytest.fixture
def host() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture
def made_of(tmp_path: Path) -> Path:
    """A file of which the lab is made."""
    file = tmp_path / "role/tasks/host.yml"
    file.parent.mkdir(parents=True)
    file.touch()
    return file


@pytest.fixture
def up(tmp_path: Path, made_of: Path, host: subprocess.Popen[bytes]) -> Path:
    pidfile = tmp_path / "host.pid"
    pidfile.write_text(f"{host.pid}\n")
    file = tmp_path / "up"
    file.write_text(f"{pidfile}:{host.pid}\n")
    os.utime(made_of, (0, 0))
    return file


def is_up(up: Path) -> bool:
    return subprocess.run(["sh", IS_UP, up, up.parent / "role"], check=False).returncode == 0


def test_it_is_up_while_its_hosts_run_as_they_were_booted(up: Path) -> None:
    assert is_up(up)


def test_a_host_that_has_ended(up: Path, host: subprocess.Popen[bytes]) -> None:
    host.kill()
    host.wait()
    assert not is_up(up)


def test_a_host_of_another_checkout(up: Path) -> None:
    (up.parent / "host.pid").write_text(f"{os.getpid()}\n")
    assert not is_up(up)


def test_what_it_is_made_of_has_changed(up: Path, made_of: Path) -> None:
    os.utime(made_of)
    os.utime(up, (1, 1))
    assert not is_up(up)


def test_it_was_never_booted(up: Path) -> None:
    up.unlink()
    assert not is_up(up)
    up.write_text("")
    assert not is_up(up)
