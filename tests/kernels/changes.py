"""A connection changes its congestion control, again and again, while the module of that comes and goes."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys
import threading
import time

ADDRESS = ("10.0.3.2", 5000)
MODULE = "tcp_recovery"
TCP_INFO, TCP_CONGESTION = 11, 13
FINIT_MODULE, DELETE_MODULE = 313, 176  # of x86-64
PAYLOAD = bytes(64 * 1024)
libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: object) -> int:
    """A system call's errno, 0 if it succeeded."""
    return ctypes.get_errno() if libc.syscall(number, *arguments) else 0


def load() -> None:
    with open(f"{MODULE}.ko", "rb") as file:
        assert call(FINIT_MODULE, file.fileno(), b"", 0) == 0


def unload() -> int:
    return call(DELETE_MODULE, MODULE.encode(), os.O_NONBLOCK)


def sink() -> None:
    connection, _ = socket.create_server(ADDRESS).accept()
    while connection.recv(1 << 20):
        pass


def send(connection: socket.socket, sent: list[int]) -> None:
    try:
        while True:
            sent[0] += connection.send(PAYLOAD)
    except OSError:  # it was shut down
        return


def window(connection: socket.socket) -> int:
    """tcpi_snd_cwnd, in segments."""
    info = connection.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 104)
    return int.from_bytes(info[80:84], sys.byteorder)


def source(times: int, controls: list[str]) -> None:
    connection = socket.create_connection(ADDRESS)
    sent = [0]
    sender = threading.Thread(target=send, args=[connection, sent])
    sender.start()
    refused = most = 0
    for _ in range(times):
        load()
        for control in controls:
            connection.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, control.encode())
            time.sleep(0.02)
            most = max(most, window(connection))
        refused += unload() == errno.EWOULDBLOCK  # it is in use
        # One that keeps no ssthresh: a recovery that it begins is ended by those above.
        connection.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"bbr")
        assert unload() == 0
        time.sleep(0.05)
    connection.shutdown(socket.SHUT_RDWR)
    sender.join()
    print(f"loaded {times}, refused {refused}, sent {sent[0]}, cwnd {most}")


if __name__ == "__main__":
    if sys.argv[1] == "sink":
        sink()
    else:
        source(int(sys.argv[2]), sys.argv[3:])
