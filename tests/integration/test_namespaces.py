"""A host that is namespaces: what is done on it stays there, and its units run as systemd would have them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import said_by

from playbooks import REPOSITORY

UNIT = """\
[Service]
User=nobody
ExecStart=/bin/sh /run/host/program %I
ExecStopPost=/bin/sh /run/host/after %I
UMask=0027
LimitNOFILE=4321
AmbientCapabilities=CAP_NET_RAW CAP_SYS_NICE
CapabilityBoundingSet=CAP_NET_RAW CAP_SYS_NICE
"""
PROGRAM = """\
mkdir -p /run/host/left/$1
cd /run/host/left/$1
sleep 1000 &
echo $! >child
{ id -un; umask; ulimit -n; grep CapAmb /proc/self/status; } >is.part
mv is.part is
"""
AFTER = """\
echo "$EXIT_CODE $EXIT_STATUS" >/run/host/left/$1/ended
"""
PACKS = """\
#!/bin/sh
[ "$1" = archive ] && tar -czf "$2.tgz" -C "$2" .
"""
# The files are gone with these mounts. The kernel accepts files of namespaces on private ones only.
HOST = """\
set -e
mount -t tmpfs none "$1"
mount --make-private "$1"
cd "$1"
touch net uts mnt
mkdir groups
mount -t cgroup2 none groups
mkdir "groups/$2"
echo "$2" >group
unshare --net=net --uts=uts --mount=mnt sh -e -c '
    hostname namesake
    for at in /run /etc/systemd/system /var/lib/dumbbell; do mkdir -p $at; mount -t tmpfs none $at; done
    mkdir /run/host
    install -d -o nobody /run/host/left
    cp "$0"/* /run/host/
    cp "$0"/service /etc/systemd/system/of-test@.service
'  "$3"
"""
# In a process of its own: one with several threads cannot enter a mount namespace.
DOES = """\
import json, sys
from pathlib import Path
from dumbbell.execution.reach import Trouble
from dumbbell.virtual.namespaces import Namespaces

place = Path(sys.argv[1])
places = {kind: place / kind for kind in ("net", "uts", "mnt")}
host = Namespaces("sender1", places, place / "groups" / sys.argv[2], place / "log")
said = {}
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    files, mounted = tmp_path / "files", tmp_path / "host"
    files.mkdir()
    mounted.mkdir()
    for name, text in {"service": UNIT, "program": PROGRAM, "after": AFTER}.items():
        (files / name).write_text(text)
    group = f"dumbbell-test-{os.getpid()}-{tmp_path.name}"
    subprocess.run(["sh", "-c", HOST, "sh", mounted, group, files], check=True)
    try:
        yield mounted
    finally:
        for folder in (mounted / "groups" / group / "of-test@run-phase", mounted / "groups" / group):
            if folder.exists():
                folder.rmdir()
        subprocess.run(["umount", "--recursive", mounted], check=True)


def does(place: Path, script: str) -> Any:
    """What a process says that has the host as ``host``, and puts answers into ``said``."""
    group = (place / "group").read_text().strip()
    program = f"{DOES}{script}\nprint(json.dumps(said))"
    return said_by([sys.executable, "-c", program, place, group], timeout_s=60)


def test_commands_and_files_are_the_host_s(place: Path, tmp_path: Path) -> None:
    said = does(
        place,
        f"""
said["name"] = host.shell("hostname").strip()
said["links"] = host.shell("ls /sys/class/net; ip -br link | wc -l").split()[-1]
said["given"] = host.shell("cat >/run/host/given && cat /run/host/given", stdin=b"text")
host.shell("mount -t tmpfs own /usr/local/sbin && mkdir /run/host/phase")
host.shell("install -m 0755 /dev/stdin /usr/local/sbin/dumbbell-agent", stdin={PACKS!r}.encode())
host.shell("cp /run/host/given /run/host/phase/status.json")
host.fetch({{"/run/host/phase": Path({str(tmp_path / "phase.tgz")!r})}})
said["own"] = [Path("/run/host").exists(), Path.cwd() == Path({str(REPOSITORY)!r})]
try:
    host.command(["sh", "-c", "echo why; exit 3"])
except Trouble as trouble:
    said["trouble"] = str(trouble)
""",
    )
    assert said == {
        "name": "namesake",
        "links": "1",
        "given": "text",
        "own": [False, True],
        "trouble": "`sh -c 'echo why; exit 3'` failed: why",
    }
    with tarfile.open(tmp_path / "phase.tgz") as archive:
        assert any(name.endswith("status.json") for name in archive.getnames())


def test_a_state_is_applied_to_the_host_alone(place: Path) -> None:
    said = does(
        place,
        """
asked = {"kernel": None, "modules": {"loaded": {}, "controls": [], "allowed": []}, "interfaces": {},
         "quiesced": [],
         "cpu": {"governor": None, "idle_latency_max_us": None, "irq_cpus": None},
         "sysctls": {"net.ipv4.tcp_sack": "0"}, "path": None, "tcp_metrics": "flush"}
said["state"] = host.apply(asked=[asked])["state"]["owned"]["net.ipv4.tcp_sack"]
said["there"] = host.shell("cat /proc/sys/net/ipv4/tcp_sack").strip()
said["here"] = Path("/proc/sys/net/ipv4/tcp_sack").read_text().strip()
try:
    host.apply(asked=[asked | {"sysctls": {"net.ipv4.none": "0"}}])
except Trouble as trouble:
    said["trouble"] = str(trouble)
""",
    )
    assert said == {
        "state": ["0", "0"],
        "there": "0",
        "here": "1",
        "trouble": "this kernel has no sysctl net.ipv4.none",
    }


WAIT = "while ! [ -s /run/host/left/run/phase/is ]; do sleep 0.02; done"
LEFT = """
left = "/run/host/left/run/phase"
host.shell(f"while ! [ -s {left}/ended ]; do sleep 0.02; done")
said["ended"] = host.shell(f"cat {left}/ended").strip()
said["child"] = host.shell(f"cat /proc/$(cat {left}/child)/cmdline 2>&1 || true")
"""


def test_a_unit_runs_as_its_user_and_nothing_of_it_is_left(place: Path) -> None:
    said = does(
        place,
        f"said['is'] = host.start('of-test@run-phase', '{WAIT}; cat /run/host/left/run/phase/is'){LEFT}",
    )
    assert said["is"].split() == ["nobody", "0027", "4321", "CapAmb:", "0000000000802000"]
    assert said["ended"] == "exited 0"
    assert "sleep" not in said["child"]


def test_a_unit_that_is_stopped_says_so(place: Path) -> None:
    said = does(
        place,
        f"""
host.stop("of-test@run-phase")
host.shell("echo wait >>/run/host/program")
host.start("of-test@run-phase", "{WAIT}")
host.stop("of-test@run-phase")
host.stop("of-test@run-phase")
{LEFT}""",
    )
    assert said["ended"] == "killed 143"
    assert "sleep" not in said["child"]
