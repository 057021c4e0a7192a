"""Reads htb's classes over netlink.

iproute2 6.1 has no JSON for them, and its text cuts rates to few digits (12345678 reads 12345Kbit), too few
for a tolerance of 1e-5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

NLMSG_DONE, NLMSG_ERROR = 3, 2
RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
TCA_KIND, TCA_OPTIONS = 1, 2
TCA_HTB_PARMS, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 6, 7
NLMSGHDR = struct.Struct("=IHHII")
TCMSG = struct.Struct("=BxxxiIII")
RTATTR = struct.Struct("=HH")
RATESPEC = struct.Struct("=BBHhHI")
HTB_OPT = struct.Struct("=12s12sIIIII")


class HtbClass(NamedTuple):
    """Parameters of an htb class as the kernel stores them."""

    rate_bps: int
    ceil_bps: int
    burst_ticks: int
    cburst_ticks: int


def class_request(ifindex: int) -> bytes:
    """Netlink request for all classes of a device."""
    length = NLMSGHDR.size + TCMSG.size
    header = NLMSGHDR.pack(length, RTM_GETTCLASS, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
    return header + TCMSG.pack(0, ifindex, 0, 0, 0)


def messages(dump: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and payload of each netlink message."""
    offset = 0
    while offset + NLMSGHDR.size <= len(dump):
        length, kind, *_ = NLMSGHDR.unpack_from(dump, offset)
        yield kind, dump[offset + NLMSGHDR.size : offset + length]
        offset += -(-length // 4) * 4


def _attributes(data: bytes) -> dict[int, bytes]:
    attributes, offset = {}, 0
    while offset + RTATTR.size <= len(data):
        length, kind = RTATTR.unpack_from(data, offset)
        attributes[kind] = data[offset + RTATTR.size : offset + length]
        offset += -(-length // 4) * 4
    return attributes


def parse_htb_classes(dump: bytes) -> Iterator[HtbClass]:
    """The htb classes in a dump of RTM_NEWTCLASS messages."""
    for kind, payload in messages(dump):
        attributes = _attributes(payload[TCMSG.size :])
        if kind != RTM_NEWTCLASS or attributes.get(TCA_KIND) != b"htb\0":
            continue
        options = _attributes(attributes[TCA_OPTIONS])
        rate, ceil, burst, cburst, *_ = HTB_OPT.unpack_from(options[TCA_HTB_PARMS])
        rate_bps = _rate_bps(rate, options.get(TCA_HTB_RATE64))
        ceil_bps = _rate_bps(ceil, options.get(TCA_HTB_CEIL64))
        yield HtbClass(rate_bps, ceil_bps, burst, cburst)


def _rate_bps(ratespec: bytes, rate64: bytes | None) -> int:
    """The rate; one above 32 bits of bytes per second is in a separate attribute."""
    rate = struct.unpack("=Q", rate64)[0] if rate64 else RATESPEC.unpack(ratespec)[-1]
    return int(rate) * 8
