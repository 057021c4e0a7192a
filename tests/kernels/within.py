"""What tests do within a kernel of their own, by its Python: `within.py route|cbr|raw|swap ...`."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from plugins.module_utils import dumbbell_link as link

NS = 1_000_000_000
PAYLOAD = bytes(1472)
FRAME = 1514  # bytes on Ethernet
SO_MAX_PACING_RATE = 47


def route(to: str, via: str, device: str) -> None:
    """A route whose segments are acknowledged at once, with timestamps in microseconds."""
    command = ["ip", "route", "replace", to, "via", via, "dev", device]
    request = link.route_request([*command, "quickack", "1", "features", "tcp_usec_ts"], _index(device))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(request)
        reason = link.refusal(netlink.recv(65536))
    if reason:
        sys.exit(f"{command}: {reason}")


def _index(device: str) -> int:
    return socket.if_nametoindex(device)


def cbr(address: str, mbit: str, seconds: str) -> None:
    """Full frames at a constant rate. It sleeps to absolute times, as virtual time needs."""
    gap_ns = FRAME * 8 * 1000 / float(mbit)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((address, 9))
        begun, sent = time.monotonic_ns(), 0
        while sent * gap_ns < float(seconds) * NS:
            late = time.monotonic_ns() - begun - sent * gap_ns
            if late < 0:
                time.sleep(-late / NS)
            with contextlib.suppress(ConnectionRefusedError):
                sock.send(PAYLOAD)
            sent += 1


def raw(address: str) -> None:
    """Segments of no connection, as scanners and replayers of captures send them, until it is ended."""
    segment = struct.pack("!HHIIBBHHH", 9, 9, 0, 0, 5 << 4, 0, 0, 0, 0) + bytes(100)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as sock:
        while True:
            sock.sendto(segment, (address, 0))
            time.sleep(0.02)


def swap(module: str, rounds: str) -> None:
    """Load a module, use its congestion control for connections that send, and unload it, again and again."""
    kept = _Sender()
    before = _slab_kb()
    for number in range(int(rounds)):
        subprocess.run(["insmod", module], check=True)
        kept.use("rapid")
        with _Sender() as brief:
            if number % 3 == 0:  # which is allowed, and no rate
                brief.sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 0)
            brief.use("rapid")
            kept.send_more(64)
            brief.send_more(16)
            if number % 10 == 0:
                subprocess.run(["ss", "-tin"], stdout=subprocess.DEVNULL, check=True)
            if number % 50 == 0:
                # What is in use stays.
                assert subprocess.run(["rmmod", "tcp_rapid"], capture_output=True, check=False).returncode
            if number % 2:
                brief.use("cubic")
        kept.use("cubic")
        # A connection that is closed with data on its way keeps its congestion control until that is there.
        deadline = time.monotonic() + 10
        while subprocess.run(["rmmod", "tcp_rapid"], capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline, "it cannot be unloaded"
            time.sleep(0.01)
    kept.send_more(64)
    print(f"rounds {rounds} slab_growth_kb {_slab_kb() - before}")


class _Sender:
    """A connection on loopback whose other end reads what comes."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.sock = socket.create_connection(server.getsockname())
            reader, _ = server.accept()
        self.read = 0
        threading.Thread(target=self._read, args=(reader,), daemon=True).start()

    def _read(self, reader: socket.socket) -> None:
        with reader:
            while data := reader.recv(1 << 16):
                self.read += len(data)

    def use(self, control: str) -> None:
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())

    def send_more(self, segments: int) -> None:
        self.sock.sendall(bytes(1448 * segments))

    def __enter__(self) -> _Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


def _slab_kb() -> int:
    (line,) = (line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("Slab:"))
    return int(line.split()[1])


if __name__ == "__main__":
    os.environ.setdefault("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    asked: dict[str, Callable[..., None]] = {"route": route, "cbr": cbr, "raw": raw, "swap": swap}
    asked[sys.argv[1]](*sys.argv[2:])
