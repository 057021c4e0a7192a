"""Captures of the router's interfaces, as tcpdump writes them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ETHERNET, PER_PACKET = 14, struct.Struct("<IIII")
NANOSECONDS = b"\x4d\x3c\xb2\xa1"


@dataclass(frozen=True)
class Packet:
    """An IPv4 packet; ``payload`` is that of TCP in bytes, 0 of anything else."""

    src: str
    dst: str
    payload: int


def packets(path: Path) -> Iterator[Packet]:
    """Those of IPv4 in a capture. ValueError if it is not whole."""
    content = path.read_bytes()
    if content[:4] != NANOSECONDS:
        raise ValueError(f"{path} is no capture with nanoseconds")
    at = 24
    while at < len(content):
        _, _, kept, _ = PER_PACKET.unpack_from(content, at)
        at += PER_PACKET.size
        packet = content[at : at + kept]
        if len(packet) < kept:
            raise ValueError(f"{path} ends within a packet")
        at += kept
        if packet[12:14] == b"\x08\x00":
            yield _packet(packet[ETHERNET:])


def _packet(header: bytes) -> Packet:
    ihl = 4 * (header[0] & 0xF)
    payload = 0
    if header[9] == socket.IPPROTO_TCP:
        payload = int.from_bytes(header[2:4], "big") - ihl - 4 * (header[ihl + 12] >> 4)
    return Packet(socket.inet_ntoa(header[12:16]), socket.inet_ntoa(header[16:20]), payload)
