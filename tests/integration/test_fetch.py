"""What agents left is brought home by an archive that no other user of the host can read or replace."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from playbooks import ansible_playbook, put_first

# The archive's directory and its mode are written down when tar begins.
TAR = """\
#!/bin/sh
case "$1" in --create) stat --format '%n %a' "$(dirname "$4")" >>{seen};; esac
exec /usr/bin/tar "$@"
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    seen = tmp_path / "seen"
    put_first(monkeypatch, tmp_path / "bin/tar", TAR.format(seen=seen))
    return seen


def fetch(tmp_path: Path, *more: str) -> tuple[int, str]:
    return ansible_playbook(
        *("-i", "sender1,", "tests/integration/playbooks/fetch.yml"),
        *("-e", f"run_dir={tmp_path / 'run'}", "-e", f"__run_phase_dir={tmp_path / 'phase'}"),
        *("-e", f"__run_fetch_dir={tmp_path / 'fetch.r1'}", "-e", "ansible_connection=local"),
        *("-e", "ansible_python_interpreter=/usr/bin/python3"),
        *more,
    )


@pytest.mark.parametrize("more", [(), ("-e", "lab_machine=vtime")], ids=["hosts", "virtual time"])
def test_nobody_else_can_read_it_and_no_copy_is_left(
    tmp_path: Path, seen: Path, more: tuple[str, ...]
) -> None:
    (tmp_path / "phase").mkdir()
    (tmp_path / "phase/events.jsonl").write_text("{}\n")
    code, said = fetch(tmp_path, *more)
    assert code == 0, said
    assert seen.read_text() == f"{tmp_path}/fetch.r1 700\n"
    home = tmp_path / "run/raw/sender1"
    assert (home / "measurement/events.jsonl").read_text() == "{}\n"
    archive = home / "measurement.tgz"
    with tarfile.open(archive) as opened:
        assert opened.getnames() == [".", "./events.jsonl"]
    assert (archive.stat().st_size % (1 << 20) == 0) == bool(more)
    assert not (tmp_path / "fetch.r1").exists()
    assert not Path("/tmp/r1.tgz").exists()


def test_no_copy_is_left_when_it_fails(tmp_path: Path, seen: Path) -> None:
    code, said = fetch(tmp_path)
    assert code != 0
    assert "phase: Cannot open: No such file or directory" in said
    assert seen.exists()
    assert not (tmp_path / "fetch.r1").exists()
    assert not Path("/tmp/r1.tgz").exists()
