"""Packets of pcap and pcapng files, and the segments of TCP in them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import dpkt

from dumbbell.read.model import Socket, Told, plain

_PCAP = {b"\xd4\xc3\xb2\xa1": ("<", 1000), b"\xa1\xb2\xc3\xd4": (">", 1000), b"\x4d\x3c\xb2\xa1": ("<", 1),
         b"\xa1\xb2\x3c\x4d": (">", 1)}  # fmt: skip
_SECTION = b"\x0a\x0d\x0d\x0a"
_LONGEST = 1 << 18  # libpcap's largest packet
_LONGEST_BLOCK = 1 << 20
_NULL, _ETHERNET, _RAW, _LOOP, _SLL, _IPV4, _IPV6, _SLL2 = 0, 1, (12, 14, 101), 108, 113, 228, 229, 276
_LINKS = (_NULL, _ETHERNET, *_RAW, _LOOP, _SLL, _IPV4, _IPV6, _SLL2)
ADVICE = "Capture again with tcpdump -w, or write the file with editcap"


class Packet(NamedTuple):
    """A packet as it lies in the file."""

    at: int  # its offset, in bytes
    unix_ns: int
    link: int
    data: bytes


class Segment(NamedTuple):
    """A segment of TCP. ``payload`` is what it carried, also if the packet was cut."""

    socket: Socket
    seq: int
    ack: int
    flags: int
    window: int
    payload: int
    options: bytes
    ip_id: int


def is_kind(head: bytes) -> bool:
    """Whether a file begins like a capture."""
    return head[:4] in _PCAP or head[:4] == _SECTION


def packets(told: Told, file: BinaryIO) -> Iterator[Packet]:
    """The packets of a capture, one at a time; :class:`Malformed` if it is damaged or of another link."""
    magic = file.read(4)
    yield from _pcapng(told, file) if magic == _SECTION else _pcap(told, file, magic)


def _pcap(told: Told, file: BinaryIO, magic: bytes) -> Iterator[Packet]:
    order, tick_ns = _PCAP[magic]
    header = _exactly(told, file, 20, 4)
    link = _link(told, struct.unpack(f"{order}I", header[16:])[0] & 0xFFFF, 20)
    at, record = 24, struct.Struct(f"{order}4I")
    while head := file.read(record.size):
        if len(head) < record.size:
            raise _cut(told, at)
        seconds, fraction, kept, _ = record.unpack(head)
        if kept > _LONGEST:
            raise told.malformed(f"byte {at}", f"the packet would have {kept} bytes", ADVICE)
        yield Packet(at, seconds * 10**9 + fraction * tick_ns, link, _exactly(told, file, kept, at))
        at += record.size + kept


def _pcapng(told: Told, file: BinaryIO) -> Iterator[Packet]:
    at, order, kind = 0, "<", _SECTION
    links: list[tuple[int, int]] = []  # of each interface: its link, and ticks per second
    while True:
        size_at = _exactly(told, file, 4, at)
        if kind == _SECTION:
            body_order = _exactly(told, file, 4, at)
            if body_order not in (b"\x4d\x3c\x2b\x1a", b"\x1a\x2b\x3c\x4d"):
                raise told.malformed(f"byte {at}", "it is no section of pcapng", ADVICE)
            order, links = "<" if body_order[0] == 0x4D else ">", []  # noqa: PLR2004
        (size,) = struct.unpack(f"{order}I", size_at)
        begun = 12 if kind == _SECTION else 8
        if not 12 <= size <= _LONGEST_BLOCK or size % 4:  # noqa: PLR2004
            raise told.malformed(f"byte {at}", f"the block would have {size} bytes", ADVICE)
        body = _exactly(told, file, size - begun, at)[:-4]
        number = struct.unpack(f"{order}I", kind)[0]
        if number == 1:
            if len(body) < 8:  # noqa: PLR2004
                raise _cut(told, at)
            links.append((struct.unpack(f"{order}H", body[:2])[0], _ticks(body[8:], order)))
        elif number == 6:  # noqa: PLR2004  enhanced packet block
            if len(body) < 20:  # noqa: PLR2004
                raise _cut(told, at)
            interface, high, low, kept, _ = struct.unpack(f"{order}5I", body[:20])
            if interface >= len(links) or kept > len(body) - 20:
                raise told.malformed(
                    f"byte {at}", "the packet is of no interface, or longer than its block", ADVICE
                )
            link, ticks = links[interface]
            unix_ns = (high << 32 | low) * 10**9 // ticks
            yield Packet(at, unix_ns, _link(told, link, at), body[20 : 20 + kept])
        elif number in (2, 3):
            told.skip("packets in blocks without a time, or of an obsolete kind")
        at += size
        if not (kind := file.read(4)):
            return
        if len(kind) < 4:  # noqa: PLR2004
            raise _cut(told, at)


def _ticks(options: bytes, order: str) -> int:
    """Ticks per second of an interface, from its option if_tsresol."""
    while len(options) >= 4:  # noqa: PLR2004
        code, size = struct.unpack(f"{order}HH", options[:4])
        if code == 9 and size == 1 and len(options) > 4:  # noqa: PLR2004
            exponent = options[4] & 0x7F
            return int(2**exponent if options[4] & 0x80 else 10 ** min(exponent, 18))
        if code == 0:
            break
        options = options[4 + (size + 3) // 4 * 4 :]
    return 10**6


def _link(told: Told, link: int, at: int) -> int:
    if link not in _LINKS:
        raise told.malformed(
            f"byte {at}",
            f"link type {link} is not understood",
            "Capture at an Ethernet interface, or at `any`",
        )
    return link


def _exactly(told: Told, file: BinaryIO, size: int, at: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise _cut(told, at)
    return data


def _cut(told: Told, at: int) -> Exception:
    return told.malformed(f"byte {at}", "the file ends here, within a packet or block", ADVICE)


def decoded(packet: Packet) -> Segment | None:
    """The segment of TCP in a packet; None if there is none, if it is a later fragment, or cut too early."""
    try:
        ip = _ip(packet)
        if isinstance(ip, dpkt.ip.IP):
            if ip.offset:
                return None
            size, ip_id = ip.len - ip.hl * 4, ip.id
        elif isinstance(ip, dpkt.ip6.IP6):
            size, ip_id = ip.plen - sum(len(header) for header in ip.all_extension_headers), 0
        else:
            return None
        tcp = ip.data
        if not isinstance(tcp, dpkt.tcp.TCP):
            return None
        src, dst = (plain(dpkt.utils.inet_to_str(address)) for address in (ip.src, ip.dst))
        socket = Socket(src, tcp.sport, dst, tcp.dport)
        if socket == socket.peer:
            return None
        payload = max(0, size - tcp.off * 4)
        return Segment(socket, tcp.seq, tcp.ack, tcp.flags, tcp.win, payload, bytes(tcp.opts), ip_id)
    except (dpkt.Error, ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error):
        return None  # dpkt raises any of these for packets that are cut or damaged


def _ip(packet: Packet) -> object:
    link, data = packet.link, packet.data
    if link == _ETHERNET:
        return dpkt.ethernet.Ethernet(data).data
    if link == _SLL:
        return dpkt.sll.SLL(data).data
    if link == _SLL2:
        return dpkt.sll2.SLL2(data).data
    if link in (_NULL, _LOOP):
        data = data[4:]
    return dpkt.ip6.IP6(data) if data[:1] and data[0] >> 4 == 6 else dpkt.ip.IP(data)  # noqa: PLR2004
