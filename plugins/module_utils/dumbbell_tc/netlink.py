"""Messages and attributes of rtnetlink, for what tc does not show or cuts to few digits."""

from __future__ import annotations

import struct
from collections.abc import Iterator

NLMSG_DONE, NLMSG_ERROR = 3, 2
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
TCA_KIND, TCA_OPTIONS = 1, 2
TYPE_MASK = 0x3FFF  # without the flag of nested attributes
NLMSGHDR = struct.Struct("=IHHII")
TCMSG = struct.Struct("=BxxxiIII")
RTATTR = struct.Struct("=HH")
RATESPEC = struct.Struct("=BBHhHI")


def dump_request(kind: int, ifindex: int, parent: int = 0) -> bytes:
    """A request for all objects of a kind (``RTM_GET*``) of a device, with that parent."""
    header = NLMSGHDR.pack(NLMSGHDR.size + TCMSG.size, kind, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
    return header + TCMSG.pack(0, ifindex, 0, parent, 0)


def messages(dump: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and payload of each netlink message."""
    offset = 0
    while offset + NLMSGHDR.size <= len(dump):
        length, kind, *_ = NLMSGHDR.unpack_from(dump, offset)
        yield kind, dump[offset + NLMSGHDR.size : offset + length]
        offset += max(NLMSGHDR.size, -(-length // 4) * 4)


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes in ``data``, by their numbers."""
    found, offset = {}, 0
    while offset + RTATTR.size <= len(data):
        length, kind = RTATTR.unpack_from(data, offset)
        found[kind & TYPE_MASK] = data[offset + RTATTR.size : offset + length]
        offset += max(RTATTR.size, -(-length // 4) * 4)
    return found


def rate_bps(ratespec: bytes, rate64: bytes | None) -> int:
    """The rate; one above 32 bits of bytes per second is in a separate attribute."""
    rate = struct.unpack("=Q", rate64)[0] if rate64 else RATESPEC.unpack(ratespec)[-1]
    return int(rate) * 8
