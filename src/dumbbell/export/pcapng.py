"""All captures of a run in one file of pcapng, with the names of hosts, interfaces and flows.

Wireshark and tshark show hosts by their names, each capture as an interface such as ``router vec1``, and the
flow of a packet as its comment: ``frame.comment == "flow1"`` filters it.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from dumbbell.ingest.capture import Capture
from dumbbell.plan.actions import CaptureAction
from dumbbell.run.raw import why_packed
from dumbbell.studies.source import Missing, Source

_SECTION, _INTERFACE, _NAMES, _PACKET = 0x0A0D0D0A, 1, 4, 6
_COMMENT, _IF_NAME, _IF_TSRESOL = 1, 2, 9
_ETHERNET, _VLAN, _IPV4, _IPV6 = 14, 0x8100, 0x0800, 0x86DD
_TRANSPORTS = (6, 17)  # TCP and UDP, whose ports begin their headers
_WHOLE = 1 << 18  # the most that a packet may have

Ends = frozenset[tuple[bytes, int]]


class _Packet(NamedTuple):
    unix_ns: int
    interface: int
    size: int
    data: bytes


def write(run: Source, path: Path) -> None:
    """Write the captures of one point, in order of time; Missing if there is none, or one is damaged."""
    found = list(_captures(run))
    if not found:
        raise Missing("Nothing was captured: ask for sampling.capture in the scenario.")
    flows, names = _flows(run)
    try:
        with path.open("wb") as file:
            file.write(
                _block(_SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1), {_COMMENT: run.name.encode()})
            )
            for name, _ in found:
                options = {_IF_NAME: name.encode(), _IF_TSRESOL: b"\x09"}  # times in ns
                file.write(_block(_INTERFACE, struct.pack("<HHI", 1, 0, _WHOLE), options))
            file.write(_block(_NAMES, _records(names), {}))
            packets = [_of_interface(number, capture) for number, (_, capture) in enumerate(found)]
            for packet in heapq.merge(*packets):
                head = struct.pack(
                    "<5I",
                    packet.interface,
                    packet.unix_ns >> 32,
                    packet.unix_ns & 0xFFFFFFFF,
                    len(packet.data),
                    packet.size,
                )
                flow = flows.get(_ends(packet.data)) or flows.get(_ends(packet.data, known=flows))
                options = {_COMMENT: flow.encode()} if flow else {}
                file.write(_block(_PACKET, head + _padded(packet.data), options))
    except ValueError as error:
        raise Missing(f"A capture cannot be read: {error}.") from None


def _captures(run: Source) -> Iterator[tuple[str, Capture]]:
    if why := why_packed(run.dir):
        raise Missing(f"There is no capture here: {why}.")
    for host, own in run.plan.phase("measurement").hosts.items():
        for action in own.actions:
            if isinstance(action, CaptureAction):
                file = run.dir / f"raw/{host}/measurement/capture-{action.name}.pcap"
                try:
                    yield f"{host} {action.name}", Capture.open(file)
                except (OSError, ValueError):
                    continue  # the verdict tells of it


def _of_interface(number: int, capture: Capture) -> Iterator[_Packet]:
    for unix_ns, size, data in capture.packets():
        yield _Packet(unix_ns, number, size, data)


def _flows(run: Source) -> tuple[dict[Ends, str], dict[bytes, str]]:
    """Flows by their ends, with port 0 where any is used; and hosts by their addresses."""
    flows: dict[Ends, str] = {}
    names: dict[bytes, str] = {}
    for flow in run.planned_flows:
        src, dst = ip_address(flow.src).packed, ip_address(flow.dst).packed
        flows[frozenset({(src, flow.ports[0]), (dst, flow.ports[1])})] = flow.name
        names |= {src: flow.src_host, dst: flow.dst_host}
    return flows, names


def _ends(data: bytes, known: dict[Ends, str] | None = None) -> Ends:
    """Addresses and ports of a packet; with ``known`` flows, the port of an end that has none there is 0."""
    at = _ETHERNET + 4 * (int.from_bytes(data[12:14], "big") == _VLAN)
    kind, ip = int.from_bytes(data[at - 2 : at], "big"), data[at:]
    if kind == _IPV4 and len(ip) >= 20 and ip[9] in _TRANSPORTS:  # noqa: PLR2004
        ends, ports = (ip[12:16], ip[16:20]), ip[4 * (ip[0] & 0xF) :][:4]
    elif kind == _IPV6 and len(ip) >= 40 and ip[6] in _TRANSPORTS:  # noqa: PLR2004
        ends, ports = (ip[8:24], ip[24:40]), ip[40:44]
    else:
        return frozenset()
    one, other = zip(ends, struct.unpack("!HH", ports.ljust(4, b"\0")), strict=True)
    if known is not None:
        for found in (frozenset({(one[0], 0), other}), frozenset({one, (other[0], 0)})):
            if found in known:
                return found
    return frozenset({one, other})


def _records(names: dict[bytes, str]) -> bytes:
    """Names of addresses, as the block of names has them."""
    parts = []
    for address, name in names.items():
        kind = 1 if len(address) == 4 else 2  # noqa: PLR2004
        value = address + name.encode() + b"\0"
        parts.append(struct.pack("<HH", kind, len(value)) + _padded(value))
    return b"".join(parts) + struct.pack("<HH", 0, 0)


def _block(kind: int, body: bytes, options: dict[int, bytes]) -> bytes:
    """A block, with its options at the end of its body."""
    for code, value in options.items():
        body += struct.pack("<HH", code, len(value)) + _padded(value)
    if options:
        body += struct.pack("<HH", 0, 0)
    size = 12 + len(body)
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % 4)
