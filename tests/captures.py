"""Captures, read and written by a library that the code under test does not use."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import dpkt

SNAP_LENGTH = 128  # that of the agent's captures


@dataclass(frozen=True)
class Packet:
    """An IPv4 packet; ``payload`` is that of TCP in bytes, 0 of anything else."""

    src: str
    dst: str
    payload: int


def packets(path: Path) -> Iterator[Packet]:
    """Those of IPv4 in a capture."""
    with path.open("rb") as file:
        for _, kept in dpkt.pcap.Reader(file):
            ip = dpkt.ethernet.Ethernet(kept).data
            if isinstance(ip, dpkt.ip.IP):
                payload = ip.len - 4 * ip.hl - 4 * ip.data.off if isinstance(ip.data, dpkt.tcp.TCP) else 0
                yield Packet(socket.inet_ntoa(ip.src), socket.inet_ntoa(ip.dst), payload)


@dataclass(frozen=True)
class Segment:
    """Of TCP, at a time; ``options`` are their bytes."""

    unix_ns: int
    src: str
    src_port: int
    dst: str
    dst_port: int
    seq: int
    ack: int
    payload: int = 0
    flags: int = dpkt.tcp.TH_ACK
    window: int = 229
    options: bytes = b""


def stamps(tsval: int, tsecr: int = 0) -> bytes:
    """The option as Linux writes it."""
    return b"\x01\x01\x08\x0a" + (tsval % 2**32).to_bytes(4, "big") + (tsecr % 2**32).to_bytes(4, "big")


def frame(segment: Segment) -> bytes:
    """An Ethernet frame."""
    src, dst = ip_address(segment.src), ip_address(segment.dst)
    tcp = dpkt.tcp.TCP(
        sport=segment.src_port,
        dport=segment.dst_port,
        seq=segment.seq % 2**32,
        ack=segment.ack % 2**32,
        flags=segment.flags,
        win=segment.window,
        opts=segment.options,
        data=bytes(segment.payload),
    )
    tcp.off = 5 + len(segment.options) // 4
    addresses = {"src": src.packed, "dst": dst.packed}
    if src.version == 4:
        ip = dpkt.ip.IP(**addresses, p=dpkt.ip.IP_PROTO_TCP, data=tcp, len=20 + len(tcp))
        return bytes(dpkt.ethernet.Ethernet(type=dpkt.ethernet.ETH_TYPE_IP, data=ip))
    ip = dpkt.ip6.IP6(**addresses, nxt=dpkt.ip.IP_PROTO_TCP, hlim=64, data=tcp, plen=len(tcp))
    return bytes(dpkt.ethernet.Ethernet(type=dpkt.ethernet.ETH_TYPE_IP6, data=ip))


def tagged(whole: bytes, vlan: int = 5) -> bytes:
    """A frame with the tag of a VLAN."""
    return whole[:12] + b"\x81\x00" + vlan.to_bytes(2, "big") + whole[12:]


def write(
    path: Path,
    frames: Iterable[tuple[int, bytes]],
    *,
    nano: bool = True,
    big_endian: bool = False,
    snap: int = SNAP_LENGTH,
) -> Path:
    """Frames, each at its time in ns, as a capture that keeps so many bytes of each."""
    file_header, packet_header = (
        (dpkt.pcap.FileHdr, dpkt.pcap.PktHdr) if big_endian else (dpkt.pcap.LEFileHdr, dpkt.pcap.LEPktHdr)
    )
    magic = dpkt.pcap.TCPDUMP_MAGIC_NANO if nano else dpkt.pcap.TCPDUMP_MAGIC
    parts = [bytes(file_header(snaplen=snap, linktype=dpkt.pcap.DLT_EN10MB, magic=magic))]
    for unix_ns, whole in frames:
        seconds, ns = divmod(unix_ns, 10**9)
        kept = whole[:snap]
        times = {"tv_sec": seconds, "tv_usec": ns if nano else ns // 1000}
        parts += [bytes(packet_header(**times, caplen=len(kept), len=len(whole))), kept]
    path.write_bytes(b"".join(parts))
    return path
