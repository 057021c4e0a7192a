"""A run with captures at both sides of the router, which loses a segment of a connection."""

from __future__ import annotations

from pathlib import Path

import captures
import dpkt
from synthetic import REPOSITORY, T0_UNIX_NS, write_run

from dumbbell.execution.collect import collect

MSS = 1000  # of the captured connection
FIRST = 2**32 - 2 * MSS - 1  # its number before the first byte: numbers wrap after two segments
RECEIVER = 7000  # that of the receiver
T0 = T0_UNIX_NS["measurement"]
PATH_NS = 400_000  # one way
SYN, ACK = dpkt.tcp.TH_SYN, dpkt.tcp.TH_ACK


def write_captured(folder: Path) -> Path:
    """Write the run, and return its directory. Of five segments the second is lost, and sent again.

    Its sender is at the side of ``vec1``.
    """
    text = (REPOSITORY / "scenarios/two_flow_fairness.yml").read_text()
    text = text.replace("duration: 30s", "duration: 6s").replace("start: 5s", "start: 1s")
    (scenario := folder / "captured.yml").write_text(text + "\nsampling: {capture: true, trace: true}\n")
    whole = write_run(folder / "run", scenario)
    collect(folder / "run", None)
    flow = whole.points[0].phase("measurement").flows[0]
    there = (flow.src, flow.client_port or 40000, flow.dst, flow.server_port)
    back = (*there[2:], *there[:2])

    def sack(*blocks: tuple[int, int]) -> bytes:
        edges = [(FIRST + 1 + edge) % 2**32 for block in blocks for edge in block]
        body = b"".join(edge.to_bytes(4, "big") for edge in edges)
        return b"\x01\x01\x05" + bytes([2 + len(body)]) + body if blocks else b""

    def sent(ms: int, number: int) -> captures.Segment:
        seq = FIRST + 1 + number * MSS
        return captures.Segment(T0 + ms * 10**6, *there, seq=seq, ack=RECEIVER + 1, payload=MSS)

    def acked(ms: int, number: int, *blocks: tuple[int, int]) -> captures.Segment:
        ack = FIRST + 1 + number * MSS
        return captures.Segment(T0 + ms * 10**6, *back, RECEIVER + 1, ack, window=100, options=sack(*blocks))

    scale = b"\x01\x03\x03\x07"
    segments = [
        captures.Segment(T0 + 10**6, *there, FIRST, 0, flags=SYN, window=65535, options=scale),
        captures.Segment(T0 + 2 * 10**6, *back, RECEIVER, FIRST + 1, flags=SYN | ACK, options=scale),
        *(sent(10 + number, number) for number in range(5)),
        acked(20, 1),
        acked(21, 1, (2 * MSS, 3 * MSS)),
        acked(22, 1, (4 * MSS, 5 * MSS), (2 * MSS, 3 * MSS)),
        sent(30, 1),
        acked(40, 5),
    ]
    lost = segments[3]
    behind = [
        (segment.unix_ns + (PATH_NS if segment.src == flow.src else -PATH_NS), captures.frame(segment))
        for segment in segments
        if segment is not lost
    ]
    raw = folder / "run" / "raw/router/measurement"
    captures.write(raw / "capture-vec1.pcap", [(each.unix_ns, captures.frame(each)) for each in segments])
    captures.write(raw / "capture-vec2.pcap", sorted(behind))
    return folder / "run"
