"""Reads the policer of a device's egress hook over netlink: tc prints its burst as text, in few digits."""

from __future__ import annotations

import struct
from typing import NamedTuple

from .netlink import TCA_KIND, TCA_OPTIONS, TCMSG, attributes, dump_request, messages, rate_bps

RTM_NEWTFILTER, RTM_GETTFILTER = 44, 46
EGRESS_HOOK = 0xFFFFFFF3  # TC_H_CLSACT and TC_H_MIN_EGRESS
TCA_MATCHALL_ACT = 2
TCA_ACT_KIND, TCA_ACT_OPTIONS = 1, 2
TCA_POLICE_TBF, TCA_POLICE_RESULT, TCA_POLICE_RATE64 = 1, 5, 8
TC_ACT_OK, TC_ACT_SHOT = 0, 2
POLICE = struct.Struct("=IiIII12s12siiI")
LARGEST_PACKET_BYTES = 65535  # without it tc drops what is longer than 2 kB


class Policer(NamedTuple):
    """A token bucket that drops what finds it empty; its burst in psched ticks, as the kernel stores it."""

    rate_bps: int
    burst_ticks: int


def filter_request(ifindex: int) -> bytes:
    """Netlink request for all filters of a device's egress hook."""
    return dump_request(RTM_GETTFILTER, ifindex, EGRESS_HOOK)


def parse_policer(dump: bytes, egress: str, index: int) -> Policer | None:
    """The policer in a dump of RTM_NEWTFILTER messages, which has that index; None without any filter.

    ValueError if the hook has other filters than one policer of all packets.
    """
    entries = []
    for kind, payload in messages(dump):
        of = attributes(payload[TCMSG.size :])
        if kind == RTM_NEWTFILTER and TCA_OPTIONS in of:  # else the head of a list of filters
            entries.append((of[TCA_KIND].rstrip(b"\0").decode(), attributes(of[TCA_OPTIONS])))
    if not entries:
        return None
    found = _policer(entries[0][1], index) if len(entries) == 1 and entries[0][0] == "matchall" else None
    if found is None:
        kinds = ", ".join(kind for kind, _ in entries)
        raise ValueError(f"{egress} has egress filters that are not this direction's policer: {kinds}")
    return found


def _policer(options: dict[int, bytes], index: int) -> Policer | None:
    actions = [attributes(action) for action in attributes(options.get(TCA_MATCHALL_ACT, b"")).values()]
    if len(actions) != 1 or actions[0].get(TCA_ACT_KIND) != b"police\0":
        return None
    of = attributes(actions[0][TCA_ACT_OPTIONS])
    own, exceeding, _, burst, mtu, rate, peak, *_ = POLICE.unpack_from(of[TCA_POLICE_TBF])
    (passing,) = struct.unpack("=i", of.get(TCA_POLICE_RESULT, bytes(4)))
    alike = (own, exceeding, passing) == (index, TC_ACT_SHOT, TC_ACT_OK) and not any(peak)
    if not alike or mtu < LARGEST_PACKET_BYTES:
        return None
    return Policer(rate_bps(rate, of.get(TCA_POLICE_RATE64)), burst)
