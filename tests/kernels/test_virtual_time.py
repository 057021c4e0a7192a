"""What virtual time needs of a kernel: exact times, repeated random numbers, registers, turns that end."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from uml import own_kernel, run

from dumbbell.virtual import world

pytestmark = pytest.mark.kernels

HERE = Path(__file__).parent
# Kernels and how their processes enter them.
ENTRIES = [("lab", "off"), ("linux-7.2", "on"), ("linux-7.2", "off")]
TRANSFER = f"""
HERE={HERE} RATE_MBIT=20 QUEUE=40 BURST=1600 DELAY_MS=20
. $HERE/path.sh
cat /proc/sys/kernel/random/uuid
ip netns exec sender ping -c 3 -i 0.1 198.18.2.11
ip netns exec receiver iperf3 -s -1 >/tmp/server.said &
sleep 0.5
ip netns exec sender iperf3 -c 198.18.2.11 -t 3 --json >/tmp/iperf3.json
ip netns exec sender cat /proc/net/netstat
tc -s -n router qdisc show dev right
date +%s.%N
"""
INIT = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
trap 'systemctl --force --force poweroff' EXIT
mount -t proc proc /proc
mount -t tmpfs tmpfs /mnt
mkdir /mnt/world
mount -t hostfs -o "$world" hostfs /mnt/world
sh /mnt/world/command
echo $? >/mnt/world/status
"""


@pytest.fixture
def registers(tmp_path: Path) -> Path:
    program = tmp_path / "registers"
    subprocess.run(["gcc", "-O2", "-pthread", "-o", program, HERE / "registers.c"], check=True)
    return program


@pytest.mark.parametrize(("kernel", "seccomp"), ENTRIES)
def test_a_seed_repeats_all_and_another_does_not(tmp_path: Path, kernel: str, seccomp: str) -> None:
    def transfer(seed: str) -> str:
        return run(TRANSFER, tmp_path, virtual=True, kernel=kernel, seccomp=seccomp, seed=seed)

    first = transfer("1")
    assert transfer("1") == first
    other = transfer("2")
    assert other.splitlines()[0] != first.splitlines()[0]  # the UUID
    # A veth adds nothing to the 20 ms, and the bottleneck passes a single packet at once.
    assert re.findall(r"time=([0-9.]+) ms", first) == ["20.0"] * 3
    # The queue of the other host fills: nothing of it belongs to the sender's socket.
    assert re.search(r"dropped [1-9]", first)


@pytest.mark.parametrize(("kernel", "seccomp"), ENTRIES)
def test_vector_registers_are_the_processs_own(
    registers: Path, tmp_path: Path, kernel: str, seccomp: str
) -> None:
    said = run(f"./{registers.name}", tmp_path, virtual=True, kernel=kernel, seccomp=seccomp)
    assert said.startswith("0 of ")
    console = (tmp_path / "console.log").read_text()
    assert ("seccomp filters can be installed...OK" in console) == (seccomp == "on")


@pytest.mark.parametrize("kernel", ["lab", "linux-7.2"])
def test_the_turn_of_what_waits_in_a_loop_is_ended(tmp_path: Path, kernel: str) -> None:
    subprocess.run(["gcc", "-O0", "-pthread", "-o", tmp_path / "waits", HERE / "waits.c"], check=True)
    init = tmp_path / "init"
    init.write_text(INIT)
    init.chmod(0o755)
    ended = world.run(
        world.World(
            dir=tmp_path / "world",
            kernel=own_kernel(kernel).image,
            init=init,
            command=[str(tmp_path / "waits")],
            checkout=tmp_path,
            writable={},
            start_unix_ns=int(time.time()) * 1_000_000_000,
            memory="512M",
            turn_s=1,
            stall_s=60,
        )
    )
    assert (ended.reason, ended.status) == ("", 0)
    assert ended.turns_ended > 0
