"""A host goes on sending to a neighbour whose answers to its requests for the address are lost."""

from __future__ import annotations

import sys

from programs import said_by

from dumbbell.execution.asked import NEIGHBOUR_REQUESTS

# The interface far gets packets, but does not answer requests. Times are shorter than the kernel's own.
HOSTS = """\
set -e
mount -t tmpfs none /run
ip netns add peer
ip link add near type veth peer name far address 02:00:00:00:00:02 netns peer
ip address add 192.0.2.1/24 dev near
ip -n peer address add 192.0.2.2/24 dev far
ip link set dev near up
ip -n peer link set dev far up
until ip -n peer -br link show dev far | grep -q ' UP '; do sleep 0.01; done
ip neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev near nud stale
ip -n peer link set dev far arp off
sysctl -q net.ipv4.neigh.near.delay_first_probe_time=1 net.ipv4.neigh.near.retrans_time_ms=100
exec "$@"
"""
SENDS = """\
import json, socket, subprocess, sys, time

def got():
    snmp = subprocess.check_output("ip netns exec peer cat /proc/net/snmp".split(), text=True)
    names, values = (line.split() for line in snmp.splitlines() if line.startswith("Udp:"))
    return int(values[names.index("NoPorts")])

subprocess.run(["sysctl", "-q", f"net.ipv4.neigh.near.ucast_solicit={sys.argv[1]}"], check=True)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for _ in range(60):
        sender.sendto(b"data", ("192.0.2.2", 9))
        time.sleep(0.05)
state = subprocess.check_output("ip -j neighbour show dev near".split(), text=True)
print(json.dumps({"got": got(), "state": json.loads(state)[0]["state"]}))
"""


def sent(requests: int) -> tuple[int, list[str]]:
    """How many of 60 datagrams arrive in 3 s if so many requests are made, and the neighbour's state then."""
    apart = ["unshare", "--net", "--mount", "sh", "-c", HOSTS, "sh"]
    said = said_by([*apart, sys.executable, "-c", SENDS, str(requests)], timeout_s=60)
    return said["got"], said["state"]


def test_answers_that_are_lost_do_not_stop_packets() -> None:
    assert sent(NEIGHBOUR_REQUESTS) == (60, ["PROBE"])
    assert sent(3)[0] < 60
