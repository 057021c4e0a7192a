"""Programs for hosts of either architecture: what roles install, and what ``make binaries`` builds."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from synthetic import REPOSITORY

from dumbbell.execution.distribution import ARCHITECTURES
from playbooks import ansible_playbook, put_first, unfolded

UNAME = "#!/bin/sh\necho {}\n"
HOSTS = "testbed: {hosts: {sender1: , receiver1: }, vars: {ansible_connection: local}}\n"
PROGRAMS = ("atou", "dumbbell-agent", "dumbbell-collect")
MACHINES = {"amd64": 0x3E, "arm64": 0xB7}  # e_machine of elf(5)


def ran(*words: str | Path, folder: Path = REPOSITORY) -> str:
    """What a command says; the test fails if it does."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def asked(folder: Path) -> tuple[int, str]:
    (folder / "hosts.yml").write_text(HOSTS)
    playbook = "tests/integration/playbooks/programs.yml"
    python = "ansible_python_interpreter=/usr/bin/python3"
    return ansible_playbook("-i", folder / "hosts.yml", playbook, "-e", f"dir={folder}", "-e", python)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_roles_install_the_programs_of_the_host_s_architecture(
    machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_first(monkeypatch, tmp_path / "bin/uname", UNAME.format(machine))
    code, said = asked(tmp_path)
    assert code == 0, said
    folder = "bin" if machine == platform.machine() else f"linux-{ARCHITECTURES[machine]}"
    names = ("dumbbell-agent", "atou", "telegraf", "influxd", "ndt-server", "ndt7-client")
    for host in ("sender1", "receiver1"):
        found = [Path(program).parts[-3:] for program in json.loads((tmp_path / f"{host}.json").read_text())]
        assert found == [(".build", folder, name) for name in names]


def test_a_host_of_another_architecture_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_first(monkeypatch, tmp_path / "bin/uname", UNAME.format("riscv64"))
    code, said = asked(tmp_path)
    assert code != 0
    assert "nothing was changed:" in said
    assert "sender1: found riscv64; supported are x86_64 and aarch64" in unfolded(said)
    assert "[Write them]" not in said


@pytest.mark.parametrize(
    ("role", "tasks_from", "program"),
    [("agent", "built", "dumbbell-agent"), ("telegraf", "main", "telegraf")],
)
def test_a_program_that_was_not_built_is_said(
    role: str, tasks_from: str, program: str, tmp_path: Path
) -> None:
    tasks = [{"ansible.builtin.include_role": {"name": f"dumbbell.testbed.{role}", "tasks_from": tasks_from}}]
    given = {"programs": f"{tmp_path}/.build/linux-none", "influxdb_database": "none", "influxdb_url": "none"}
    play = {"hosts": "localhost", "gather_facts": False, "vars": given, "tasks": tasks}
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks/play.yml").write_text(json.dumps([play]))
    code, said = ansible_playbook("-i", "localhost,", tmp_path / "playbooks/play.yml")
    assert code != 0
    reason = "dumbbell build, or make binaries if the host has another architecture"
    assert f"There is no {tmp_path}/.build/linux-none/{program}: {reason}" in unfolded(said)
    assert "changed=0" in said


@pytest.fixture(scope="module")
def built() -> dict[str, Path]:
    """The files of a release, by their names without the version."""
    ran("make", "binaries")
    dist = REPOSITORY / ".build/dist"
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    return {file.name.replace(f"-{version}-", "-"): file for file in dist.iterdir()}


def test_each_program_is_there_for_each_architecture(built: dict[str, Path]) -> None:
    names = [f"{program}-linux-{machine}" for program in PROGRAMS for machine in MACHINES]
    assert sorted(built) == sorted(["SHA256SUMS", *names, *(f"{name}.cdx.json" for name in names)])
    for name in names:
        head = built[name].read_bytes()[:20]
        assert int.from_bytes(head[18:20], "little") == MACHINES[name[-5:]], name


def test_checksums_are_those_of_the_files(built: dict[str, Path]) -> None:
    sums = built["SHA256SUMS"]
    listed = {name: digest for digest, name in map(str.split, sums.read_text().splitlines())}
    files = [file for file in built.values() if file != sums]
    assert listed == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_the_bill_of_materials_names_the_modules_of_the_program(built: dict[str, Path]) -> None:
    for name in (name for name in built if name.endswith(".json")):
        program = built[name.removesuffix(".cdx.json")]
        bill = json.loads(built[name].read_text())
        said = (line.split() for line in ran("go", "version", "-m", program).splitlines())
        modules = {(words[1], words[2]) for words in said if words[0] == "dep"}
        named = {(part["name"], part["version"]) for part in bill["components"]}
        assert modules <= named, name
        assert {extra for extra, _ in named - modules} == {"std"}
        assert f"goarch={name.split('.')[0][-5:]}&" in bill["metadata"]["component"]["purl"]


def test_the_same_sources_give_the_same_bytes_in_other_directories(tmp_path: Path) -> None:
    sources = ran(
        "git", "ls-files", "-z", "go.mod", "go.sum", "Makefile", "pyproject.toml", "*.go", "*.o"
    ).split("\0")
    programs = [f".build/linux-{machine}/{program}" for program in PROGRAMS for machine in MACHINES]
    found = []
    for folder in (tmp_path / "one", tmp_path / "another/below"):
        for source in filter(None, sources):
            (folder / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / source, folder / source)
        ran("make", *programs, folder=folder)
        found.append([hashlib.sha256((folder / program).read_bytes()).hexdigest() for program in programs])
        assert not any(str(tmp_path).encode() in (folder / program).read_bytes() for program in programs)
    assert found[0] == found[1]


def test_programs_for_arm64_run(built: dict[str, Path]) -> None:
    emulator = shutil.which("qemu-aarch64-static")
    assert emulator, "qemu-user-static is not installed: make test-arm64 does that"
    for program in ("dumbbell-agent", "dumbbell-collect", "atou"):
        own, other = built[f"{program}-linux-amd64"], built[f"{program}-linux-arm64"]
        assert ran(emulator, other, "version") == ran(own, "version") != ""
