"""Tries whether hosts reach each other: pings that may not be fragmented, TCP, UDP and NTP."""

from __future__ import annotations

import os
import re
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Any

Execute = Callable[[list[str]], tuple[int, str, str]]

HEADERS_BYTES = {4: 28, 6: 48}  # IP and ICMP
END = b"end"
TRIES = 5
WAIT_S = 3.0
NTP_REQUEST = b"\x23" + 47 * b"\0"  # version 4, client: RFC 5905


def ping(execute: Execute, device: str, peer: str, mtu: int) -> str:
    """'' if an echo of a whole packet of `mtu` bytes came back through the device; else what came instead."""
    size = mtu - HEADERS_BYTES[ip_address(peer).version]
    command = [
        "ping",
        "-n",
        "-M",
        "do",
        "-c",
        "3",
        "-i",
        "0.3",
        "-W",
        "2",
        "-s",
        str(size),
        "-I",
        device,
        peer,
    ]
    code, out, err = execute(command)
    if code == 0:
        return ""
    said = re.findall(r".*(?:local error|[Uu]nreachable|[Pp]rohibited|needed).*", out) or err.splitlines()
    return said[0].strip() if said else "no answer"


def neighbour(execute: Execute, device: str, peer: str) -> str | None:
    """The link-layer address by which the device knows a peer; None if it does not."""
    out = execute(["ip", "neighbour", "show", "to", peer, "dev", device])[1]
    found = re.search(r"lladdr (\S+)", out)
    return found[1] if found and "FAILED" not in out else None


# The end that waits


def serve(ends: Sequence[Mapping[str, Any]], seconds: float) -> list[str]:
    """Answer once on each end, `{protocol, address, port}`, in a process of its own that ends by itself.

    Returns the ends that cannot be had, with the reason: a program of the host has them.
    """
    sockets, taken = [], []
    for end in ends:
        kind = socket.SOCK_STREAM if end["protocol"] == "tcp" else socket.SOCK_DGRAM
        family = socket.AF_INET6 if ip_address(end["address"]).version == 6 else socket.AF_INET  # noqa: PLR2004
        opened = socket.socket(family, kind)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((end["address"], end["port"]))
            if kind == socket.SOCK_STREAM:
                opened.listen()
            sockets.append(opened)
        except OSError as error:
            taken.append(f"{end['protocol'].upper()} {end['address']}:{end['port']}: {error.strerror}")
            opened.close()
    if sockets and os.fork() == 0:
        try:
            _answer(sockets, time.monotonic() + seconds)
        finally:
            os._exit(0)
    for each in sockets:
        each.close()
    return taken


def _answer(sockets: Sequence[socket.socket], until: float) -> None:
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # Ansible waits until they are closed
        os.dup2(nowhere, stream)
    waiting = selectors.DefaultSelector()
    for opened in sockets:
        waiting.register(opened, selectors.EVENT_READ)
    while waiting.get_map() and (left := until - time.monotonic()) > 0:
        for key, _ in waiting.select(left):
            end: Any = key.fileobj
            if end.type == socket.SOCK_STREAM:
                end.accept()[0].close()
                done = True
            else:
                data, sender = end.recvfrom(100)
                end.sendto(data, sender)
                done = data == END
            if done:
                waiting.unregister(end)
                end.close()


# The end that asks


def attempts(ends: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each end, '' if it was reached, else why not; all at once. An end has also `from`, or ''."""
    with ThreadPoolExecutor(max(1, len(ends))) as pool:
        return list(pool.map(attempt, ends))


def attempt(end: Mapping[str, Any]) -> str:
    """'' if an end answers, else why not."""
    try:
        return {"tcp": _tcp, "udp": _udp, "ntp": _ntp}[end["protocol"]](end)
    except socket.timeout:  # noqa: UP041  another exception in Python 3.9 of RHEL 9
        return "no answer"
    except OSError as error:
        return error.strerror or str(error)


def _tcp(end: Mapping[str, Any]) -> str:
    source = (end["from"], 0) if end.get("from") else None
    socket.create_connection((end["address"], end["port"]), WAIT_S, source).close()
    return ""


def _udp(end: Mapping[str, Any]) -> str:
    return _exchange(end, [b"try"] * (TRIES - 1) + [END])


def _ntp(end: Mapping[str, Any]) -> str:
    return _exchange(end, [NTP_REQUEST])


def _exchange(end: Mapping[str, Any], datagrams: Sequence[bytes]) -> str:
    family = socket.AF_INET6 if ip_address(end["address"]).version == 6 else socket.AF_INET  # noqa: PLR2004
    answered = False
    with socket.socket(family, socket.SOCK_DGRAM) as opened:
        if end.get("from"):
            opened.bind((end["from"], 0))
        opened.connect((end["address"], end["port"]))
        for data in datagrams:
            opened.settimeout(WAIT_S / len(datagrams))
            opened.send(data)
            try:
                opened.recv(100)
                answered = True
            except socket.timeout:  # noqa: UP041
                continue
    return "" if answered else "no answer"
