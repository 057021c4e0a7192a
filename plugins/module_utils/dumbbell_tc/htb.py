"""Reads htb's classes over netlink.

iproute2 6.1 has no JSON for them, and its text cuts rates to few digits (12345678 reads 12345Kbit), too few
for a tolerance of 1e-5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from .netlink import TCA_KIND, TCA_OPTIONS, TCMSG, attributes, dump_request, messages, rate_bps

RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
TCA_HTB_PARMS, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 6, 7
HTB_OPT = struct.Struct("=12s12sIIIII")


class HtbClass(NamedTuple):
    """Parameters of an htb class as the kernel stores them."""

    rate_bps: int
    ceil_bps: int
    burst_ticks: int
    cburst_ticks: int


def class_request(ifindex: int) -> bytes:
    """Netlink request for all classes of a device."""
    return dump_request(RTM_GETTCLASS, ifindex)


def parse_htb_classes(dump: bytes) -> Iterator[HtbClass]:
    """The htb classes in a dump of RTM_NEWTCLASS messages."""
    for kind, payload in messages(dump):
        of = attributes(payload[TCMSG.size :])
        if kind != RTM_NEWTCLASS or of.get(TCA_KIND) != b"htb\0":
            continue
        options = attributes(of[TCA_OPTIONS])
        rate, ceil, burst, cburst, *_ = HTB_OPT.unpack_from(options[TCA_HTB_PARMS])
        yield HtbClass(
            rate_bps(rate, options.get(TCA_HTB_RATE64)),
            rate_bps(ceil, options.get(TCA_HTB_CEIL64)),
            burst,
            cburst,
        )
