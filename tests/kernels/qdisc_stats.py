"""What the root qdisc `rapid` of a device counts, as JSON: `qdisc_stats.py DEVICE`, with Python alone."""

import json
import socket
import struct
import sys

RTM_GETQDISC, DUMP = 38, 0x301  # NLM_F_REQUEST | NLM_F_DUMP
KIND, STATS2, APP = 1, 7, 4  # TCA_KIND, TCA_STATS2, TCA_STATS_APP
DONE = 3
XSTATS = struct.Struct("=QQQQII")  # struct rapid_xstats
NAMES = ("retrans", "jumped", "ts_regressions", "restamped", "maxq", "flows")


def attributes(data):
    found, at = {}, 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        found[kind & 0x3FFF] = data[at + 4 : at + length]
        at += (length + 3) & ~3
    return found


def main(device):
    index = socket.if_nametoindex(device)
    route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    route.send(struct.pack("=IHHIIBxxxiIII", 36, RTM_GETQDISC, DUMP, 1, 0, 0, index, 0, 0, 0))
    while True:
        reply, at = route.recv(1 << 20), 0
        while at < len(reply):
            length, kind = struct.unpack_from("=IH", reply, at)
            if kind == DONE:
                sys.exit(f"{device} has no qdisc rapid")
            (owner,) = struct.unpack_from("=i", reply, at + 20)
            found = attributes(reply[at + 36 : at + length])
            if owner == index and found[KIND] == b"rapid\0":
                counted = XSTATS.unpack_from(attributes(found[STATS2])[APP])
                print(json.dumps(dict(zip(NAMES, counted, strict=True))))
                return
            at += (length + 3) & ~3


main(sys.argv[1])
