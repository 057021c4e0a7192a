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
# A sender, a router with a queue of 40 packets, and a receiver, 20 ms there and back.
TRANSFER = """
for host in sender router receiver; do
    ip netns add $host
    ip -n $host link set lo up
done
ip link add left netns router type veth peer name out netns sender
ip link add right netns router type veth peer name in netns receiver
for of in sender,out,198.18.1.11 router,left,198.18.1.1 router,right,198.18.2.1 receiver,in,198.18.2.11; do
    set -- $(echo $of | tr , " ")
    ip -n $1 address add $3/24 dev $2
    ip -n $1 link set $2 up
done
ip -n sender route add default via 198.18.1.1
ip -n receiver route add default via 198.18.2.1
ip netns exec router sysctl -qw net.ipv4.ip_forward=1
tc -n router qdisc add dev right root netem rate 20mbit delay 10ms limit 40
tc -n router qdisc add dev left root netem delay 10ms limit 1000
cat /proc/sys/kernel/random/uuid
cat >connect.py <<END
import socket, time
for _ in range(2): # before the first, addresses are resolved
    began_ns = time.monotonic_ns()
    socket.socket().connect_ex(("198.18.2.11", 9)) # where nobody listens
    print("refused after", time.monotonic_ns() - began_ns)
END
ip netns exec sender python3 connect.py
ip netns exec receiver iperf3 -s -1 >/tmp/server.said &
sleep 0.5
ip netns exec sender iperf3 -c 198.18.2.11 -t 3 --json >/tmp/iperf3.json
ip netns exec sender cat /proc/net/netstat
tc -s -n router qdisc show dev right
python3 -c 'import time; print(time.monotonic_ns())'
"""
INIT = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LIBMOUNT_FORCE_MOUNT2=always
trap 'systemctl --force --force poweroff' EXIT
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir /run/world /run/checkout
mount -t hostfs -o "$world" hostfs /run/world
read -r _ checkout _ </run/world/mounts
mount -t hostfs -o "$checkout" hostfs /run/checkout
sh /run/world/command
echo $? >/run/world/status
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
    # The path, and what the bottleneck takes for a packet.
    _, rtt_ns = re.findall(r"refused after (\d+)", first)
    assert 20_000_000 <= int(rtt_ns) < 20_100_000
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


@pytest.mark.parametrize("kernel", ["lab", "linux-6.1", "linux-7.2"])
def test_the_turn_of_what_waits_in_a_loop_is_ended(tmp_path: Path, kernel: str) -> None:
    subprocess.run(["gcc", "-O0", "-pthread", "-o", tmp_path / "waits", HERE / "waits.c"], check=True)
    init = tmp_path / "init"
    init.write_text(INIT)
    init.chmod(0o755)
    ended = world.run(
        world.World(
            dir=tmp_path / "world",
            kernel=own_kernel(kernel).image,
            lab=tmp_path,
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
