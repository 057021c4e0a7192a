"""Hosts that worlds begin with are provisioned once, whoever asks, and again after a failure."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dumbbell.virtual.runs import provision

DIGEST = Path(__file__).parents[2] / "roles/lab/files/digest.sh"
KEEPS = """
    echo once >>$began/began
    while read -r option outside at; do
        case $option in rw) ;; *) continue ;; esac
        [ $at = /run/keep ] || exit 3
        mkdir $world/upper && echo is >$world/upper/file
        tar -C $world/upper -cf $outside/sender1.tar .
    done <$world/mounts
    echo 0 >$world/status
"""


def asked(folder: Path, script: str) -> dict[str, Any]:
    """What the action is asked for a kernel that is a script."""
    begins = folder / "begins"
    begins.mkdir(parents=True, exist_ok=True)
    kernel = folder / "linux"
    kernel.write_text(f"#!/bin/sh\nworld=$PWD began={folder}\n{script}")
    kernel.chmod(0o755)
    of = {"dir": str(begins), "kernel": str(kernel), "provisioned": str(begins / "provisioned")}
    of["init"] = str(begins / "init")
    return {"world": of, "checkout": str(folder), "stall_timeout": 30.0}


def left(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "begins").iterdir() if file.suffix != ".lock")


def test_what_is_added_to_hosts_is_kept_and_nothing_else(tmp_path: Path) -> None:
    assert provision(["true"], asked(tmp_path, KEEPS), print) == (True, "")
    assert left(tmp_path) == ["compiled", "provisioned"]
    assert (tmp_path / "begins/provisioned/sender1/file").read_text() == "is\n"
    assert provision(["true"], asked(tmp_path, "exit 3"), print) == (False, "")


def test_of_those_that_ask_at_once_one_does_it_and_the_others_wait(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each a process, as playbooks are."""
    args = asked(tmp_path, f"while ! [ -e {tmp_path}/go ]; do sleep 0.1; done\n{KEEPS}")
    asks = "from dumbbell.virtual import runs; print(runs.provision(['true'], {}, print), flush=True)"
    asking = [subprocess.Popen([sys.executable, "-c", asks.format(args)]) for _ in range(3)]
    until = time.monotonic() + 60
    out = ""
    while out.count("waits for it") < 2 and time.monotonic() < until:
        time.sleep(0.1)
        out += capfd.readouterr().out
    (tmp_path / "go").touch()
    assert [process.wait(60) for process in asking] == [0, 0, 0]
    out += capfd.readouterr().out
    assert (out.count("waits for it"), out.count("(True, '')"), out.count("(False, '')")) == (2, 1, 2)
    assert (tmp_path / "began").read_text() == "once\n"


def test_a_failure_says_where_to_look_and_the_next_begins_anew(tmp_path: Path) -> None:
    changed, reason = provision(["true"], asked(tmp_path, "exit 3"), print)
    assert changed
    _, console = reason.split("; see ")
    assert Path(console).exists()
    assert provision(["true"], asked(tmp_path, KEEPS), print) == (True, "")
    assert left(tmp_path) == ["compiled", "provisioned"]


def digest(checkout: Path, values: str) -> str:
    """The name of what a world of this checkout begins with."""
    agent, collection = checkout / "agent", checkout / "ansible_collections/dumbbell/testbed"
    for file in (
        checkout / "inventory/a/hosts.yml",
        checkout / "kernels/a.yml",
        collection / "playbooks/provision.yml",
        agent,
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (checkout / "modules").mkdir(exist_ok=True)
    read = re.findall(r"(?:roles|plugins)/\w+|vars", DIGEST.read_text())
    for folder in read:
        (collection / folder).mkdir(parents=True, exist_ok=True)
    asked = (checkout, checkout / "inventory/a", checkout / "kernels/a.yml", agent, values)
    return str(subprocess.check_output(["sh", DIGEST, *map(str, asked)], text=True)).strip()


def test_a_world_that_is_made_of_something_else_has_another_name(tmp_path: Path) -> None:
    named = {digest(tmp_path, "198.18.0.1/24"), digest(tmp_path, "198.18.0.2/24")}
    for place in (
        "ansible_collections/dumbbell/testbed/roles/lab/templates.j2",
        "ansible_collections/dumbbell/testbed/roles/agent/main.yml",
        "modules/tcp_mine.c",
        "agent",
        "inventory/a/hosts.yml",
        "kernels/fragment",
    ):
        (tmp_path / place).write_text(place)
        named.add(digest(tmp_path, "198.18.0.1/24"))
    assert len(named) == 8
    (tmp_path / "ansible_collections/dumbbell/testbed/roles/lab/README.md").write_text("tells of it")
    assert digest(tmp_path, "198.18.0.1/24") in named


def test_where_the_checkout_is_makes_no_difference(tmp_path: Path) -> None:
    there = tmp_path / "else where#" / "checkout"
    assert digest(tmp_path / "here", "198.18.0.1/24") == digest(there, "198.18.0.1/24")
