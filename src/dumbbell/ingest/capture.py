"""TCP segments of a capture of tcpdump, in blocks, because a capture of hours does not fit into memory."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl

BLOCK_BYTES = 1 << 23
FIN, SYN, RST, ACK = 1, 2, 4, 16
SEGMENTS = {
    "at": pl.Int64,
    "unix_ns": pl.Int64,
    "src": pl.String,
    "src_port": pl.UInt16,
    "dst": pl.String,
    "dst_port": pl.UInt16,
    "seq": pl.UInt32,
    "ack": pl.UInt32,
    "flags": pl.UInt8,
    "payload_bytes": pl.Int64,
    "tsval": pl.UInt32,
    "tsecr": pl.UInt32,
    "dsack": pl.Boolean,
}

# By the file's first four bytes: byte order, and nanoseconds of the unit of fractions of seconds.
_MAGIC = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_HEADER, _RECORD, _LONGEST = 24, 16, 1 << 18  # bytes; the last is libpcap's largest packet
_ETHERNET_LINK, _ETHERNET, _VLAN, _TAG = 1, 14, 0x8100, 4  # the tag of IEEE 802.1Q
_IPV4, _IPV6, _TCP, _TCP_HEADER = 0x0800, 0x86DD, 6, 20
_MAPPED = 0xFFFF << 32  # an IPv4 address in one of IPv6, RFC 4291
_TIMESTAMPS, _TIMESTAMPS_BYTES = 8, 10  # the option, RFC 7323
_WINDOW_SCALE = 3  # RFC 7323
_SACK, _SACK_ONE, _SACK_TWO = 5, 10, 18  # the option with one block or two, RFC 2018
_PADDING = bytes(64)  # after a block's last packet: read, but not used

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Capture:
    """A file of packets of an Ethernet interface."""

    path: Path
    order: str  # of bytes, as struct has it
    tick_ns: int

    @classmethod
    def open(cls, path: Path) -> Capture:
        """Open a capture. Raises OSError if it cannot be read, ValueError if it is no capture of Ethernet."""
        with path.open("rb") as file:
            header = file.read(_HEADER)
        if len(header) < _HEADER or header[:4] not in _MAGIC:
            begin = header[:4].hex(" ") or "nothing"
            raise ValueError(f"{path} is no capture as tcpdump -w writes it: it begins with {begin}")
        order, tick_ns = _MAGIC[header[:4]]
        (link,) = struct.unpack_from(f"{order}I", header, 20)
        if link & 0xFFFF != _ETHERNET_LINK:
            raise ValueError(f"{path} is of link type {link & 0xFFFF}; only Ethernet, 1, is understood")
        return cls(path, order, tick_ns)

    def segments(self, block_bytes: int = BLOCK_BYTES) -> Iterator[pl.DataFrame]:
        """Segments of TCP in order, with the columns of :data:`SEGMENTS`, a frame for each block.

        ``at`` is the offset of the packet's record. ``payload_bytes`` is from IP's header, even if a packet
        was cut. ``tsval`` and its echo ``tsecr`` are null without timestamps, or if they were cut off.
        ``dsack``: the segment reports data that arrived twice (RFC 2883). Left out are later fragments,
        packets with extension headers of IPv6 or several VLAN tags, and packets cut before the end of TCP's
        fixed header.
        Raises ValueError if the file is damaged, or ends within a packet.
        """
        with self.path.open("rb") as file:
            file.seek(_HEADER)
            for begin, block, records in self._blocks(file, block_bytes):
                yield self._segments(begin, block, records)

    def _blocks(self, file: BinaryIO, block_bytes: int) -> Iterator[tuple[int, bytes, Numbers]]:
        """Offset of a block, its bytes, and the offsets of its records in it; all records are complete."""
        length, begin, left = struct.Struct(f"{self.order}I").unpack_from, file.tell(), b""
        while read := file.read(block_bytes):
            block, at, records = left + read, 0, []
            while at + _RECORD <= len(block):
                (kept,) = length(block, at + 8)
                if kept > _LONGEST:
                    raise ValueError(f"{self.path}: at {begin + at} is no packet: it would have {kept} bytes")
                if (behind := at + _RECORD + kept) > len(block):
                    break
                records.append(at)
                at = behind
            yield begin, block[:at], np.array(records, np.int64)
            begin, left = begin + at, block[at:]
        if left:
            raise ValueError(f"{self.path} ends within a packet, at {begin}")

    def _segments(self, begin: int, block: bytes, records: Numbers) -> pl.DataFrame:
        data = np.frombuffer(block + _PADDING, np.uint8)

        def number(at: Numbers, size: int, order: str = ">") -> np.ndarray[Any, Any]:
            found = np.zeros(len(at), np.uint64)
            for place in range(size) if order == ">" else reversed(range(size)):
                found = found << np.uint64(8) | data[at + place]
            return found

        kept = number(records + 8, 4, self.order).astype(np.int64)
        kind = np.where(kept >= _ETHERNET + 20, number(records + _RECORD + 12, 2), 0)
        ethernet = np.where(kind == _VLAN, _ETHERNET + _TAG, _ETHERNET)
        kind = np.where(kind == _VLAN, number(records + _RECORD + 12 + _TAG, 2), kind)
        parts = []
        for ether_type in (_IPV4, _IPV6):
            v4, own = ether_type == _IPV4, records[kind == ether_type]
            ip = own + _RECORD + ethernet[kind == ether_type]
            end = own + _RECORD + kept[kind == ether_type]
            size = 4 * (data[ip] & 0xF).astype(np.int64) if v4 else np.full(len(ip), 40)
            whole = (data[ip + (9 if v4 else 6)] == _TCP) & (ip + size + _TCP_HEADER <= end)
            if v4:
                whole &= number(ip + 6, 2) & np.uint64(0x1FFF) == 0  # no later fragment
            own, ip, end, size = own[whole], ip[whole], end[whole], size[whole]
            tcp = ip + size
            header = 4 * (data[tcp + 12] >> 4).astype(np.int64)
            total = number(ip + 2, 2).astype(np.int64) if v4 else 40 + number(ip + 4, 2).astype(np.int64)
            ack = number(tcp + 8, 4).astype(np.int64)
            told = _told(data, tcp + _TCP_HEADER, np.minimum(tcp + header, end), ack)
            seconds, fraction = (number(own + at, 4, self.order).astype(np.int64) for at in (0, 4))
            ends = {}
            for name, at in (
                (("src", ip + 12), ("dst", ip + 16)) if v4 else (("src", ip + 8), ("dst", ip + 24))
            ):
                high = np.zeros(len(at), np.uint64) if v4 else number(at, 8)
                ends[name] = _addresses(high, number(at, 4) | np.uint64(_MAPPED) if v4 else number(at + 8, 8))
            columns = {
                "at": begin + own,
                "unix_ns": seconds * 10**9 + fraction * self.tick_ns,
                "src": ends["src"],
                "src_port": number(tcp, 2),
                "dst": ends["dst"],
                "dst_port": number(tcp + 2, 2),
                "seq": number(tcp + 4, 4),
                "ack": ack,
                "flags": data[tcp + 13],
                "payload_bytes": total - size - header,
                "tsval": told.tsval,
                "tsecr": told.tsecr,
                "dsack": told.dsack,
            }
            frame = pl.DataFrame(columns, schema_overrides={"src": pl.String, "dst": pl.String})
            stamped = pl.Series(told.stamped)
            frame = frame.with_columns(pl.when(stamped).then(name).alias(name) for name in ("tsval", "tsecr"))
            parts.append(frame.cast(SEGMENTS))  # type: ignore[arg-type]
        return pl.concat(parts).sort("at")

    def packets(self, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, int, bytes]]:
        """Time (unix ns), size on the wire, and what was kept of each packet; ValueError as for segments."""
        header = struct.Struct(f"{self.order}4I").unpack_from
        with self.path.open("rb") as file:
            file.seek(_HEADER)
            for _, block, records in self._blocks(file, block_bytes):
                for at in records.tolist():
                    seconds, fraction, kept, size = header(block, at)
                    data = block[at + _RECORD : at + _RECORD + kept]
                    yield seconds * 10**9 + fraction * self.tick_ns, size, data

    def told(self, offsets: Iterable[int]) -> Iterator[Told]:
        """What the headers at these offsets, of segments, say beside what :meth:`segments` has of them."""
        with self.path.open("rb") as file:
            for at in offsets:
                file.seek(at + 8)
                (kept,) = struct.unpack(f"{self.order}I", file.read(4))
                file.seek(4, 1)
                yield _told_by(file.read(kept))

    def text(self, at: int) -> str:
        """The segment at an offset, in the format of ``tcpdump -tt -n -S``."""
        with self.path.open("rb") as file:
            file.seek(at)
            seconds, fraction, kept, _ = struct.unpack(f"{self.order}4I", file.read(_RECORD))
            packet = file.read(kept)
        ethernet = _ETHERNET + _TAG * (int.from_bytes(packet[12:14], "big") == _VLAN)
        ip, v4 = packet[ethernet:], int.from_bytes(packet[ethernet - 2 : ethernet], "big") == _IPV4
        size, total = 4 * (ip[0] & 0xF), int.from_bytes(ip[2:4], "big")
        ends = [ip[12:16], ip[16:20]]
        if not v4:
            size, total, ends = 40, 40 + int.from_bytes(ip[4:6], "big"), [ip[8:24], ip[24:40]]
        src_port, dst_port, seq, ack, header, flags, window = struct.unpack_from("!HHIIBBH", ip, size)
        header = 4 * (header >> 4)
        payload = total - size - header
        shown = "".join(letter for bit, letter in enumerate("FSRP.UEW") if flags & 1 << bit)
        words = [f"Flags [{shown or 'none'}]"]
        if payload:
            words.append(f"seq {seq}:{(seq + payload) & 0xFFFFFFFF}")
        elif flags & (SYN | FIN | RST):
            words.append(f"seq {seq}")
        if flags & ACK:
            words.append(f"ack {ack}")
        words.append(f"win {window}")
        if options := ",".join(_options(ip[size + _TCP_HEADER : size + header])):
            words.append(f"options [{options}]")
        src, dst = (f"{ip_address(end)}.{port}" for end, port in zip(ends, (src_port, dst_port), strict=True))
        when = f"{seconds}.{fraction:0{9 if self.tick_ns == 1 else 6}}"
        return f"{when} {'IP' if v4 else 'IP6'} {src} > {dst}: {', '.join(words)}, length {payload}"


class Told(NamedTuple):
    """The window in the header, by how many bits it is shifted (in a SYN), and the blocks of SACK."""

    window: int
    shift: int | None
    sacked: list[tuple[int, int]]


def _told_by(packet: bytes) -> Told:
    ethernet = _ETHERNET + _TAG * (int.from_bytes(packet[12:14], "big") == _VLAN)
    v4 = int.from_bytes(packet[ethernet - 2 : ethernet], "big") == _IPV4
    tcp = packet[ethernet + (4 * (packet[ethernet] & 0xF) if v4 else 40) :]
    options, shift, sacked = tcp[_TCP_HEADER : 4 * (tcp[12] >> 4)], None, []
    while options and options[0]:
        size = 1 if options[0] == 1 else options[1] if len(options) > 1 else 0
        if not 0 < size <= len(options):
            break
        body = options[2:size]
        if options[0] == _WINDOW_SCALE and body:
            shift = body[0]
        elif options[0] == _SACK:
            edges = [int.from_bytes(body[at : at + 4], "big") for at in range(0, len(body) - 3, 4)]
            sacked = list(zip(edges[::2], edges[1::2], strict=False))
        options = options[size:]
    return Told(int.from_bytes(tcp[14:16], "big"), shift, sacked)


def _addresses(high: np.ndarray[Any, Any], low: np.ndarray[Any, Any]) -> pl.Series:
    """Addresses as text, from their halves. Few are distinct, so each is formatted once."""
    halves = pl.DataFrame({"high": high, "low": low})
    known = halves.unique()
    whole = [IPv6Address(high << 64 | low) for high, low in known.iter_rows()]
    known = known.with_columns(text=pl.Series([str(ip.ipv4_mapped or ip) for ip in whole], dtype=pl.String))
    return halves.join(known, on=["high", "low"], how="left", maintain_order="left")["text"]


class _Told(NamedTuple):
    """From the options of each header: timestamp and echo, whether it has them, if it reports duplicates."""

    tsval: Numbers
    tsecr: Numbers
    stamped: Flags
    dsack: Flags


def _told(data: np.ndarray[Any, Any], begin: Numbers, end: Numbers, ack: Numbers) -> _Told:
    """Read the options from ``begin`` to ``end`` of headers that acknowledge ``ack``."""
    count = len(begin)
    told = _Told(
        tsval=np.zeros(count, np.int64),
        tsecr=np.zeros(count, np.int64),
        stamped=np.zeros(count, np.bool_),
        dsack=np.zeros(count, np.bool_),
    )

    def number(at: Numbers) -> Numbers:
        return sum(data[at + place].astype(np.int64) << (24 - 8 * place) for place in range(4))  # type: ignore[return-value]

    def before(first: Numbers, second: Numbers) -> Flags:
        return (first - second) % (1 << 32) >= 1 << 31

    rows, at = np.arange(count), begin
    while len(rows):
        there = at < end[rows]
        rows, at = rows[there], at[there]
        kind, size = data[at], data[at + 1].astype(np.int64)
        whole = at + size <= end[rows]
        found = (kind == _TIMESTAMPS) & (size == _TIMESTAMPS_BYTES) & whole
        told.tsval[rows[found]] = number(at[found] + 2)
        told.tsecr[rows[found]] = number(at[found] + 6)
        told.stamped[rows[found]] = True
        # D-SACK: the first block is already acknowledged, or lies within the second.
        found = (kind == _SACK) & (size >= _SACK_ONE) & whole
        told.dsack[rows[found]] = before(number(at[found] + 2), ack[rows[found]])
        found &= size >= _SACK_TWO
        left, right, left_2, right_2 = (number(at[found] + place) for place in (2, 6, 10, 14))
        told.dsack[rows[found]] |= ~before(left, left_2) & ~before(right_2, right)
        more = (kind != 0) & ((kind == 1) | (size > 1))
        rows, at = rows[more], (at + np.where(kind == 1, 1, size))[more]  # a NOP has no size
    return told


def _options(options: bytes) -> Iterator[str]:
    """TCP's options in tcpdump's format."""
    while options:
        kind, size = options[0], options[1] if len(options) > 1 else 0
        if kind in (0, 1):
            yield ("eol", "nop")[kind]
            options = options[1:] if kind else b""
            continue
        if not 1 < size <= len(options):
            yield "[|tcp]"
            return
        body, options = options[2:size], options[size:]
        numbers = [int.from_bytes(body[at : at + 4], "big") for at in range(0, len(body), 4)]
        match kind:
            case 2:
                yield f"mss {int.from_bytes(body, 'big')}"
            case 3:
                yield f"wscale {body[0]}"
            case 4:
                yield "sackOK"
            case 5:
                edges = zip(numbers[::2], numbers[1::2], strict=False)
                yield f"sack {len(numbers) // 2} {''.join(f'{{{a}:{b}}}' for a, b in edges)}"
            case 8:
                yield f"TS val {numbers[0]} ecr {numbers[1]}"
            case _:
                yield f"unknown-{kind} 0x{body.hex()}"
