"""Captures of tcpdump and Wireshark, pcap and pcapng: what packets of TCP tell of their senders."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from dumbbell.read.lines import opened
from dumbbell.read.model import MOST, MOST_SOCKETS, Socket, Told, Value
from dumbbell.read.packets import ADVICE, Packet, Segment, decoded, is_kind, packets

__all__ = ["KIND", "is_kind", "read"]

KIND = "capture"
EACH_NS = 100_000_000  # between rows of a connection
NOT_TOLD = (
    "A capture does not tell cwnd, ssthresh and pacing, nor what the application had written: what limited "
    "the time with data in flight and room in the receiver's window is not known.",
    "Segments count as sent again if their data was sent before, also those that were reordered before the "
    "capture.",
)
NO_HANDSHAKE = (
    "A handshake is not in the capture: the scale of its windows is not known, nor how far from its sender "
    "it was captured. RTT and time in flight are those from there on."
)
FAR = (
    "A sender was captured far from it (its own delay to there is more than a tenth of the RTT): RTT, data "
    "in flight and times are left out. Capture at the sender."
)
_SYN, _RST, _ACK = 2, 4, 16
_STAMP = 12  # bytes of the option in each segment, with padding
_NEAR = 0.1  # of the RTT
_COUNTS = ("segs_out", "segs_in", "data_segs_out", "bytes_sent", "bytes_retrans", "total_retrans")
_AGAIN_NS = 50_000_000  # a packet that is seen twice, at two interfaces


def read(told: Told) -> None:
    """Fill in each end that sends data; :class:`Malformed` if the file is damaged or has no TCP."""
    told.not_told += NOT_TOLD
    links: dict[tuple[Socket, Socket], _Connection] = {}
    number, last_ns = 0, 0
    with opened(told.path) as file:
        for packet in packets(told, file):
            number += 1
            last_ns = packet.unix_ns
            if last_ns > MOST:
                raise told.malformed(f"byte {packet.at}", f"its time is {last_ns} ns since 1970", ADVICE)
            if (segment := decoded(packet)) is None:
                told.skip("packets that are not TCP, or cut before the end of its header")
                continue
            _take(told, links, segment, packet)
    for connection in links.values():
        connection.finish(last_ns)
    if not any(end.first_ns is not None for end in told.ends.values()):
        raise told.malformed(
            "its end",
            f"none of its {number} packets has data of TCP",
            "Capture the connection while it transfers data",
        )


def _take(
    told: Told, links: dict[tuple[Socket, Socket], _Connection], segment: Segment, packet: Packet
) -> None:
    socket = segment.socket
    key = min(socket, socket.peer), max(socket, socket.peer)
    connection = links.get(key)
    begins = segment.flags & (_SYN | _ACK) == _SYN
    if connection is not None and begins and connection.ways[socket].data:
        connection.finish(packet.unix_ns)
        connection = None
        again = True
    else:
        again = False
    if connection is None:
        if len(links) >= MOST_SOCKETS:
            raise told.malformed(
                f"byte {packet.at}",
                f"it has more than {MOST_SOCKETS} connections",
                "Filter it: tcpdump -r ... host ADDRESS",
            )
        connection = links[key] = _Connection(told, socket, again)
    try:
        connection.take(segment, packet.unix_ns)
    except ValueError as error:
        raise told.malformed(f"byte {packet.at}", str(error), ADVICE) from None


# --- one connection -------------------------------------------------------------------------------


@dataclass
class _Way:
    """One direction of data: what its sender has done, as the packets tell."""

    first: int | None = None  # the first sequence number of data
    sent: int = 0  # the highest that was sent, counted on beyond 32 bits
    acked: int | None = None
    scale: int | None = None  # of the windows that this end advertises
    mss: int | None = None  # that this end accepts
    stamps: bool = False
    window: int | None = None  # that the other end advertises, in bytes
    data: int = 0  # segments with data
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
    srtt_us: float | None = None
    rttvar_us: float = 0
    min_rtt_us: int | None = None
    times: deque[tuple[int, int]] = field(
        default_factory=lambda: deque(maxlen=1 << 14)
    )  # end of data, when sent
    busy_ns: int = 0
    rwnd_ns: int = 0
    at_ns: int | None = None  # until when times are counted
    row_ns: int | None = None

    @property
    def flight(self) -> int:
        """Bytes that are sent and not acknowledged."""
        return max(0, self.sent - self.acked) if self.acked is not None else 0


class _Connection:
    """Both directions of a connection."""

    def __init__(self, told: Told, socket: Socket, again: bool) -> None:
        self.told = told
        self.again = {socket: again, socket.peer: again}
        self.ways = {socket: _Way(), socket.peer: _Way()}
        self.shaken: dict[str, int] = {}  # times of the handshake
        self.client: Socket | None = None
        self.recent: deque[tuple[object, int]] = deque(maxlen=16)

    def take(self, segment: Segment, unix_ns: int) -> None:
        """One segment more, in the order of the file."""
        seen = (segment.socket, segment.ip_id, segment.seq, segment.ack, segment.payload, segment.flags)
        if segment.ip_id and any(
            seen == other and unix_ns - at_ns < _AGAIN_NS for other, at_ns in self.recent
        ):
            self.told.skip("packets that were captured twice, at two interfaces")
            return
        self.recent.append((seen, unix_ns))
        own, other = self.ways[segment.socket], self.ways[segment.socket.peer]
        for way in (own, other):
            self._pass(way, unix_ns)
        if segment.flags & _SYN:
            self._handshake(segment, own, unix_ns)
        elif self.client == segment.socket and "ack" not in self.shaken and segment.flags & _ACK:
            self.shaken["ack"] = unix_ns
        self._sent(segment, own, unix_ns)
        if segment.flags & _ACK:
            self._acked(segment, own, other, unix_ns)
        own.counts["segs_out"] += 1
        other.counts["segs_in"] += 1
        for socket, way in self.ways.items():
            if way.data and (way.row_ns is None or unix_ns - way.row_ns >= EACH_NS):
                self._row(socket, way, unix_ns)

    def finish(self, unix_ns: int) -> None:
        """The last rows, at the end of the capture or of the connection."""
        for socket, way in self.ways.items():
            last = way.at_ns if way.at_ns is not None else unix_ns
            if way.data and way.row_ns != last:
                self._row(socket, way, last)

    def mss(self, socket: Socket) -> int | None:
        """Payload of a full segment from an end; None without the handshake."""
        ways = self.ways[socket], self.ways[socket.peer]
        if not all(way.mss for way in ways):
            return None
        return max(1, min(way.mss or 1 for way in ways) - (_STAMP if all(way.stamps for way in ways) else 0))

    def _pass(self, way: _Way, unix_ns: int) -> None:
        """Count the time since the last segment to what held the sender back."""
        if way.at_ns is not None and unix_ns > way.at_ns and way.flight:
            passed = unix_ns - way.at_ns
            way.busy_ns += passed
            least = next((way.mss for way in self.ways.values() if way.mss), 1)
            if way.window is not None and way.flight + least > way.window:
                way.rwnd_ns += passed
        way.at_ns = unix_ns if way.at_ns is None else max(way.at_ns, unix_ns)

    def _handshake(self, segment: Segment, own: _Way, unix_ns: int) -> None:
        told = dict(_options(segment.options))
        if (mss := told.get(2)) is not None and len(mss) == 2:  # noqa: PLR2004
            own.mss = int.from_bytes(mss, "big") or None
        scale = told.get(3)
        own.scale = min(scale[0], 14) if scale else 0
        own.stamps = 8 in told  # noqa: PLR2004  RFC 7323
        if segment.flags & _ACK:
            self.shaken.setdefault("synack", unix_ns)
        else:
            self.client = segment.socket
            self.shaken = {"syn": unix_ns}

    def _sent(self, segment: Segment, own: _Way, unix_ns: int) -> None:
        if not segment.payload:
            return
        if own.first is None:
            own.first, own.sent = segment.seq, segment.seq
            own.acked = segment.seq
        begin = _near(segment.seq, own.sent)
        end = begin + segment.payload
        if segment.payload <= 1 and begin == own.sent - 1:
            return  # a keep-alive
        size = self.mss(segment.socket) or segment.payload
        parts = -(-segment.payload // size)  # of a packet that the interface cuts into segments
        own.data += parts
        own.counts["data_segs_out"] += parts
        own.counts["bytes_sent"] += segment.payload
        if begin < own.sent:
            own.counts["total_retrans"] += parts
            own.counts["bytes_retrans"] += segment.payload
            own.times.clear()  # an ACK of data that was sent twice tells no RTT
        elif self.ways[segment.socket.peer].counts["segs_out"]:  # else its ACKs were not captured
            own.times.append((end, unix_ns))
        own.sent = max(own.sent, end)

    def _acked(self, segment: Segment, own: _Way, other: _Way, unix_ns: int) -> None:
        """What an end acknowledges of the data of the other, and its window."""
        handshake = bool(segment.flags & _SYN)
        if own.scale is not None and other.scale is not None and not segment.flags & _RST:  # it has no window
            other.window = segment.window << (0 if handshake else own.scale)
        if other.acked is None or handshake:
            return
        acked = _near(segment.ack, other.acked)
        if not other.acked < acked <= other.sent + 1:  # 1: the FIN
            return
        other.acked = min(acked, other.sent)
        sent_ns = None
        while other.times and other.times[0][0] <= acked:
            sent_ns = other.times.popleft()[1]
        if sent_ns is not None and unix_ns > sent_ns:
            _smooth(other, (unix_ns - sent_ns) / 1000)

    def _near_sender(self, socket: Socket) -> bool | None:
        """Whether the capture was made near an end; None if the handshake does not tell."""
        if self.client is None or not {"syn", "synack", "ack"} <= self.shaken.keys():
            return None
        to_server = self.shaken["synack"] - self.shaken["syn"]
        to_client = self.shaken["ack"] - self.shaken["synack"]
        own = to_client if socket == self.client else to_server
        return own <= _NEAR * (to_server + to_client)

    def _row(self, socket: Socket, way: _Way, unix_ns: int) -> None:
        near, mss = self._near_sender(socket), self.mss(socket)
        for note, true in ((NO_HANDSHAKE, near is None), (FAR, near is False)):
            if true and note not in self.told.not_told:
                self.told.not_told.append(note)
        values: dict[str, Value] = {
            **way.counts,
            "bytes_acked": None if way.acked is None or way.first is None else way.acked - way.first,
            "snd_mss": mss,
            "snd_wnd": way.window,
        }
        if near is not False:
            values |= {
                "srtt_us": None if way.srtt_us is None else round(way.srtt_us),
                "rttvar_us": None if way.srtt_us is None else round(way.rttvar_us),
                "min_rtt_us": way.min_rtt_us,
                "unacked": -(-way.flight // mss) if mss else None,
                "busy_time_us": way.busy_ns // 1000,
                "rwnd_limited_us": None if way.window is None else way.rwnd_ns // 1000,
            }
        end = self.told.seen(socket, again=self.again[socket])
        self.again[socket] = False
        self.told.add("tcp_info", end, unix_ns, values)
        way.row_ns = unix_ns


def _smooth(way: _Way, rtt_us: float) -> None:
    """RFC 6298, 2."""
    if way.srtt_us is None:
        way.srtt_us, way.rttvar_us = rtt_us, rtt_us / 2
    else:
        way.rttvar_us += (abs(way.srtt_us - rtt_us) - way.rttvar_us) / 4
        way.srtt_us += (rtt_us - way.srtt_us) / 8
    way.min_rtt_us = round(min(rtt_us, way.min_rtt_us or rtt_us))


def _near(seq: int, to: int) -> int:
    """A sequence number counted on beyond 32 bits: the one nearest to another."""
    return to + (seq - to + (1 << 31)) % (1 << 32) - (1 << 31)


def _options(options: bytes) -> Iterator[tuple[int, bytes]]:
    while options and options[0]:
        if options[0] == 1:
            options = options[1:]
            continue
        size = options[1] if len(options) > 1 else 0
        if not 1 < size <= len(options):
            return
        yield options[0], options[2:size]
        options = options[size:]
